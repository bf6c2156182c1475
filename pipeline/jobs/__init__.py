"""Jobs on Spark over topics, committed offsets and their history. START HERE: launch.py."""
