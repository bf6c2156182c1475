"""What Apache Kafka 3.9.1 itself wrote is served as Kafka served it.

Source: tests/golden/kafka-data.json says where the data comes from; golden-protocol.json
(docs/spec/coordinator.md §1.10 checks C1.1 and C2.5).
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordinator.group_registry import GroupRegistry, GroupTerm
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.replay import Replay
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import records
from tests.coordinator.coordinator_harness import CoordinatorHarness
from tests.coordinator.memory_log import MemoryLog
from tests.sim.simulated_loop import SimulatedLoop

GOLDEN = Path(__file__).parent.parent / "golden"
VECTORS = json.loads((GOLDEN / "golden-protocol.json").read_text())
OFFSETS: dict[str, list[tuple[str, int, int, str]]] = json.loads(
    (GOLDEN / "kafka-data.json").read_text()
)["offsets"]
PARTITIONS = 5


@pytest.fixture(scope="module")
def segments() -> list[bytes]:
    with tarfile.open(GOLDEN / "kafka-data.tar.gz") as archive:
        found = []
        for index in range(PARTITIONS):
            name = f"data/__consumer_offsets-{index}/00000000000000000000.log"
            member = archive.extractfile(name)
            assert member is not None
            found.append(member.read())
    return found


@pytest.fixture
def taken_over(
    make_harness: Callable[..., CoordinatorHarness], segments: list[bytes]
) -> CoordinatorHarness:
    loop = SimulatedLoop(1)
    log = MemoryLog(loop)
    for index, data in enumerate(segments):
        partition = log.partition(index)
        partition.batches = [
            bytearray(data[position : position + size]) for position, size in batch.iterate(data)
        ]
        if partition.batches:
            partition.start = batch.base_offset(partition.batches[0])
            partition.end = batch.next_offset(partition.batches[-1])
        log.replicate(index)
    return make_harness(loop=loop, log=log, partitions=PARTITIONS, retention_min=10_000_000)


@pytest.mark.parametrize("group", OFFSETS)
def test_the_offsets_of_a_group_are_what_kafka_answered(
    taken_over: CoordinatorHarness, group: str
) -> None:
    topics = taken_over.fetch(group=group, topics=None).answer.topics
    # librdkafka, which wrote and read these, sends a NUL behind metadata and takes it off again
    found = sorted(
        (topic.name, part.partition_index, part.committed_offset, part.metadata.rstrip("\0"))
        for topic in topics
        for part in topic.partitions
    )
    assert found == sorted(tuple(item) for item in OFFSETS[group])


def test_no_other_group_is_there(taken_over: CoordinatorHarness) -> None:
    groups = taken_over.coordinator.registry.groups
    assert {name for name, group in groups.items() if group.offsets.committed} == OFFSETS.keys()


def test_a_static_member_is_still_in_its_group_until_its_session_ends(
    taken_over: CoordinatorHarness,
) -> None:
    group = taken_over.group("members")
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    assert (group.protocol_type, group.protocol) == ("consumer", "range")
    assert group.static_members.keys() == {"static-1"}
    assert group.subscribed is not None
    assert {"m2-gzip", "m2-lz4"} <= group.subscribed
    member = group.static_members["static-1"]
    code = taken_over.heartbeat(member, 1, group="members", group_instance_id="static-1")
    assert code is ErrorCode.NONE
    taken_over.wait(300)
    assert group.state is GroupState.EMPTY


@pytest.mark.parametrize("vector", VECTORS["group_partition"], ids=lambda v: repr(v["group"]))
@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_group_lives_in_the_partition_kafka_gives_it(vector: dict[str, Any], count: int) -> None:
    registry = GroupRegistry()
    registry.start(count)
    group = bytes.fromhex(vector["group_utf8_hex"]).decode()
    assert registry.partition_of(group) == vector[f"partition_{count}"]


def test_commit_tombstone_group_and_group_tombstone_amount_to_nothing() -> None:
    data = bytes.fromhex(VECTORS["offsets_record_batch"]["hex"])
    replay = Replay()
    seen = []
    for record in records(data):
        replay.apply(record.offset, record.key, record.value)
        seen.append(record)
    assert len(seen) == len(VECTORS["offsets_record_batch"]["records"])
    assert list(replay.groups(GroupTerm(0, 0), 0)) == []
