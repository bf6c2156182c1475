"""One node's replicas over real logs, for the handlers of the data plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.replication.replicas import Replicas
from tests.replication.logs import Around, Shelf, hosting


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(tmp_path)
    await shelf.load()
    yield shelf
    await shelf.close()


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
def replicas(shelf: Shelf, around: Around) -> Replicas:
    return hosting(shelf, lambda *key: key == ("elsewhere", 0), around)
