"""One node's replicas over real logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.replication.replicas import Replicas
from tests.replication.logs import NODE, Shelf

KNOWN_ELSEWHERE = ("elsewhere", 0)


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(tmp_path)
    await shelf.load()
    yield shelf
    await shelf.close()


@pytest.fixture
def replicas(shelf: Shelf) -> Replicas:
    return Replicas(NODE, shelf, knows=lambda *key: key == KNOWN_ELSEWHERE)
