"""The group coordinator inside a node: elections, offsets and audit topics, producer ids."""
