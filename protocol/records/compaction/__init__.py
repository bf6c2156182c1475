"""What compaction does to records: which stay, and a batch without the others."""
