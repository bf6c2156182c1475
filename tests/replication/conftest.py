"""One node's replicas over real logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from tests.replication.logs import (
    FakeFetcherManager,
    FakePartitionContext,
    ManualLogManager,
    hosting,
)

KNOWN_ELSEWHERE = ("elsewhere", 0)


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[ManualLogManager]:
    shelf = ManualLogManager(tmp_path)
    await shelf.load()
    yield shelf
    await shelf.close()


@pytest.fixture
def context() -> FakePartitionContext:
    return FakePartitionContext()


@pytest.fixture
def fetchers() -> FakeFetcherManager:
    return FakeFetcherManager()


@pytest.fixture
def replicas(
    shelf: ManualLogManager, context: FakePartitionContext, fetchers: FakeFetcherManager
) -> ReplicaManager:
    return hosting(shelf, lambda *key: key == KNOWN_ELSEWHERE, context, fetchers)
