"""What ``barnabas nodes`` does: what each node has, and how it is emptied and filled."""
