"""Changes of a cluster that are not offsets of a group: planned, shown, done, read again."""
