"""Asking transaction coordinators whether partitions are part of a transaction (KIP-890)."""
