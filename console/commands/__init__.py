"""The verbs of the ``barnabas`` command, a file for each."""
