"""The log cleaner: which log is compacted next, the pass, and the swap of its segments."""
