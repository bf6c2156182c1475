"""Logs on disk: segments, indexes, recovery and the files beneath them."""
