"""One segment: its file of batches, its three indexes, and the headers in it."""
