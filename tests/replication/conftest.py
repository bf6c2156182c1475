"""One node's replicas over real logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.replication.replicas import Replicas
from tests.replication.logs import Around, Following, Shelf, hosting

KNOWN_ELSEWHERE = ("elsewhere", 0)


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
def following() -> Following:
    return Following()


@pytest.fixture
def replicas(shelf: Shelf, around: Around, following: Following) -> Replicas:
    return hosting(shelf, lambda *key: key == KNOWN_ELSEWHERE, around, following)
