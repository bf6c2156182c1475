"""The web console: a cluster in a browser, from a process of its own."""
