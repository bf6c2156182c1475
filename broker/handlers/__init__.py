"""What the node answers, one file for each area of the protocol."""
