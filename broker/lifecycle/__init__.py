"""A node's place in the cluster: identity, registration in ZooKeeper, and controlled shutdown."""
