"""What Spark reads: topics through brokers, segment files, and offsets kept in ZooKeeper."""
