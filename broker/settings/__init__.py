"""The settings of a node and of topics: declared, read, validated, and changed at run time."""
