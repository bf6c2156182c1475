"""One node's replicas over real logs, for the handlers of the data plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from tests.replication.logs import FakePartitionContext, ManualLogManager, hosting


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[ManualLogManager]:
    shelf = ManualLogManager(tmp_path)
    await shelf.load()
    yield shelf
    await shelf.close()


@pytest.fixture
def around() -> FakePartitionContext:
    return FakePartitionContext()


@pytest.fixture
def replicas(shelf: ManualLogManager, around: FakePartitionContext) -> ReplicaManager:
    return hosting(shelf, lambda *key: key == ("elsewhere", 0), around)
