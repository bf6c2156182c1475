"""The controller: which node leads which partition, decided through ZooKeeper alone."""
