"""What the console knows of a cluster, how old that is, and what could not be read."""
