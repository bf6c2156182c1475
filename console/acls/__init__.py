"""Access control lists on the command line: what is typed, as entries and filters."""
