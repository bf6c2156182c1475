"""ZooKeeper as an interface, and kazoo behind it."""
