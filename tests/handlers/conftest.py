"""One node's replicas over real logs, for the handlers of the data plane."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from tests.replication.conftest import context, shelf
from tests.replication.logs import FakePartitionContext, ManualLogManager, hosting

__all__ = ["context", "shelf"]


@pytest.fixture
def replicas(shelf: ManualLogManager, context: FakePartitionContext) -> ReplicaManager:
    return hosting(shelf, lambda *key: key == ("elsewhere", 0), context)
