"""What the console does for the security of a cluster: files, znodes, reviews."""
