"""The development cluster: an embedded ZooKeeper and nodes as child processes."""
