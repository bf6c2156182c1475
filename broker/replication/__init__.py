"""Partitions as this node hosts them: leadership, high watermark and who waits for it."""
