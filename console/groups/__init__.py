"""Sub-commands of ``barnabas groups``, and the plan, undo file and CSV that they work with."""
