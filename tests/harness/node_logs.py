"""What nodes of ours log while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .deployments import Deployment, OwnCluster


@contextmanager
def quiet(cluster: Deployment) -> Iterator[None]:
    """Fails when a node closes a connection that misbehaves, or logs an error, meanwhile."""
    logs = cluster.logs if isinstance(cluster, OwnCluster) else ()
    before = {path: path.stat().st_size for path in logs}
    yield
    said = [
        line
        for path, size in before.items()
        for line in path.read_bytes()[size:].decode().splitlines()
        if "closed connection" in line or " E barnabas" in line
    ]
    assert not said
