"""Records on the command line: how lines become records, and records lines."""
