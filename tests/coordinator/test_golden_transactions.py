"""Offsets that Apache Kafka 3.9.1 committed in transactions are served as Kafka served them.

Source: tests/golden/txn-data.json; docs/spec/transactions.md §4 (T4.4).
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from tests.coordinator.coordinator_harness import CoordinatorHarness
from tests.coordinator.memory_log import MemoryLog
from tests.records.vectors import GOLDEN
from tests.sim.simulated_loop import SimulatedLoop

FILE: dict[str, Any] = json.loads((GOLDEN / "txn-data.json").read_text())
PARTITIONS = FILE["settings"]["offsets.topic.num.partitions"]


@pytest.fixture
def taken_over(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    loop = SimulatedLoop(1)
    log = MemoryLog(loop)
    with tarfile.open(GOLDEN / "txn-data.tar.gz") as archive:
        for index in range(PARTITIONS):
            name = f"data/__consumer_offsets-{index}/00000000000000000000.log"
            member = archive.extractfile(name)
            assert member is not None
            data = member.read()
            partition = log.partition(index)
            partition.batches = [
                bytearray(data[position : position + size])
                for position, size in batch.iterate(data)
            ]
            partition.start = batch.base_offset(partition.batches[0])
            partition.end = batch.next_offset(partition.batches[-1])
            log.replicate(index)
    return make_harness(loop=loop, log=log, partitions=PARTITIONS, retention_min=10_000_000)


def fetched(
    taken_over: CoordinatorHarness, group: str, **options: Any
) -> dict[str, tuple[int, int]]:
    """Offset and code of each partition of a group."""
    topics = taken_over.fetch(group=group, **options).answer.topics
    return {
        f"{topic.name}-{part.partition_index}": (part.committed_offset, part.error_code)
        for topic in topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("group", FILE["offsets"])
def test_the_offsets_of_a_group_are_what_kafka_answered(
    taken_over: CoordinatorHarness, group: str
) -> None:
    """T4.4: among them that of "ordered", a plain commit between record and marker, which stays."""
    wanted = {name: (offset, 0) for name, offset in FILE["offsets"][group].items()}
    assert fetched(taken_over, group, topics=None) == wanted


@pytest.mark.parametrize("group", FILE["staged"])
def test_an_offset_of_an_open_transaction_is_not_served_and_makes_its_partition_unstable(
    taken_over: CoordinatorHarness, group: str
) -> None:
    """T4.3: the transaction was begun at Kafka."""
    for name in FILE["staged"][group]:
        topic, _, index = name.rpartition("-")
        asked = {"topics": {topic: [int(index)]}}
        assert fetched(taken_over, group, **asked) == {name: (-1, 0)}
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert fetched(taken_over, group, **asked, is_stable=True) == {name: (-1, unstable)}
