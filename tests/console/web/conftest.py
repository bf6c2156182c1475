"""Consoles over ASGI, without a browser and without a socket, and a cluster to look at."""

from __future__ import annotations

from tests.harness.fixtures import cluster, deploy_fresh, group, topic

__all__ = ["cluster", "deploy_fresh", "group", "topic"]
