"""What stands in ZooKeeper: paths, and the payload of each kind of znode."""
