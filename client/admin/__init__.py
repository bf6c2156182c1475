"""Administration: topics, groups, their offsets and the history of both."""
