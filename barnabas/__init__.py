"""Barnabas: a Kafka-compatible cluster and offset manager. This folder only links to the packages beside it.

PYTEST_DONT_REWRITE: the plug-in makes pytest warn of packages of ours that were imported before it.
"""
