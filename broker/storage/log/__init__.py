"""The log of one partition replica: appends, reads, its list of segments, flushes, truncation."""
