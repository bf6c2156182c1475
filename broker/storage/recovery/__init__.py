"""From files to a log: what a start loads, verifies, repairs and quarantines."""
