"""Consoles over ASGI, without a browser and without a socket, and a cluster to look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.console.web import app
from barnabas.console.web.watch import catalogue, hot_rows, node_status, reading
from tests.harness.fixtures import cluster, deploy_fresh, group, topic

__all__ = ["cluster", "deploy_fresh", "group", "patience", "topic"]

PATIENCE_S = 90.0


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    """Pages show what is there now, however long a busy machine takes to tell it.

    A reader gets after two seconds what was known before his change, and after three a node that
    says nothing of itself: a test would find that, and take it for what the cluster says.
    """
    with pytest.MonkeyPatch.context() as patched:
        for module in (reading, hot_rows, catalogue):
            patched.setattr(module, "PATIENCE_S", PATIENCE_S)
        patched.setattr(node_status, "TIMEOUT_S", PATIENCE_S)
        patched.setattr(app, "PAGE_S", 2 * PATIENCE_S)
        yield
