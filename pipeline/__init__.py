"""Pipelines on Spark over topics, committed offsets and their history. START HERE: frames.py."""
