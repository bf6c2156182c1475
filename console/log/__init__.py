"""Sub-commands of ``barnabas log``: dump, verify and repair the files of a log."""
