"""The daemon: network, handlers, controller, replication and storage."""
