"""What the log directories of a node hold, as administrators are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.files import DiskFiles, StorageError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_log_dirs as messages
from tests.handlers.peer import call, over_the_wire
from tests.replication.logs import ManualLogManager, a_batch, follow, lead


async def told(
    shelf: ManualLogManager, replicas: ReplicaManager, *topics: messages.Topic, version: int = 4
) -> list[messages.Result]:
    request = messages.DescribeLogDirsRequest(topics=topics or None)
    handler = DescribeLogDirsHandler(shelf, replicas, DiskFiles())
    answer: Any = await handler.describe(call(request, version))
    results: list[messages.Result] = over_the_wire(answer, version).results
    return results


@pytest.mark.parametrize("version", range(5))
async def test_each_directory_tells_its_logs_and_their_sizes(
    shelf: ManualLogManager, replicas: ReplicaManager, tmp_path: Path, version: int
) -> None:
    lead(replicas, "t", 0)
    lead(replicas, "t", 1)
    follow(replicas, "u")
    batch = a_batch()
    size = len(batch)
    partition = replicas.led("t", 1)
    partition.append(batch, acks=1, is_client=True)
    (result,) = await told(shelf, replicas, version=version)
    found = {
        (topic.name, each.partition_index): (each.partition_size, each.offset_lag)
        for topic in result.topics
        for each in topic.partitions
    }
    assert result.log_dir == str(tmp_path)
    assert found == {("t", 0): (0, 0), ("t", 1): (size, 0), ("u", 0): (0, 0)}
    if version == 4:
        assert 0 < result.usable_bytes <= result.total_bytes


async def test_only_the_partitions_asked_for_are_told(
    shelf: ManualLogManager, replicas: ReplicaManager
) -> None:
    lead(replicas, "t", 0)
    lead(replicas, "t", 1)
    (result,) = await told(shelf, replicas, messages.Topic(topic="t", partitions=[1, 7]))
    assert [each.partition_index for each in result.topics[0].partitions] == [1]


async def test_a_failed_directory_has_its_code_and_tells_nothing(
    shelf: ManualLogManager, replicas: ReplicaManager, tmp_path: Path
) -> None:
    lead(replicas, "t", 0)
    shelf.directories[0].take_offline(StorageError(tmp_path, "broke"))
    (result,) = await told(shelf, replicas)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
