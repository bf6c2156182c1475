"""Barnabas: a Kafka-compatible cluster and offset manager. This folder only links to the packages beside it."""
