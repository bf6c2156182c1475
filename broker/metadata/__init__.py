"""What a node knows about the cluster's topics, leaders and nodes."""
