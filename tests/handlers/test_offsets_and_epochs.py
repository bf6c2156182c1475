"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import pytest

from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.stale_leaders import StaleLeaders
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_offsets, offset_for_leader_epoch
from tests.handlers.peer import SomePeer, call, over_the_wire
from tests.replication.logs import ManualLogManager, a_batch, follow, lead


@pytest.fixture
def offsets(replicas: ReplicaManager) -> ListOffsetsHandler:
    return ListOffsetsHandler(replicas)


def asked(
    topic: str, *timestamps: int, count: int = 1, epoch: int = -1, replica_id: int = -1
) -> list_offsets.ListOffsetsRequest:
    """One partition of a topic of its own for each timestamp."""
    return list_offsets.ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            list_offsets.Topic(
                name=topic,
                partitions=[
                    list_offsets.Partition(
                        partition_index=index,
                        timestamp=timestamp,
                        max_num_offsets=count,
                        current_leader_epoch=epoch,
                    )
                    for index, timestamp in enumerate(timestamps)
                ],
            )
        ],
    )


def found(
    handler: ListOffsetsHandler, version: int, request: list_offsets.ListOffsetsRequest
) -> list_offsets.PartitionResult:
    answer = over_the_wire(handler.list_offsets(call(request, version)), version)
    result: list_offsets.PartitionResult = answer.topics[0].partitions[0]
    return result


def three_batches(replicas: ReplicaManager, epoch: int = 0) -> None:
    lead(replicas, "t", epoch=epoch)
    for time in (1000, 3000, 2000):
        batch = a_batch(2, timestamp_ms=time)
        replicas.led("t", 0).append(batch, acks=1, is_client=True)


@pytest.mark.parametrize("version", range(1, 10))
def test_the_ends_of_a_log_are_found(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, version: int
) -> None:
    three_batches(replicas, epoch=2)
    latest, earliest = (found(offsets, version, asked("t", time)) for time in (-1, -2))
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 6, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
    assert latest.leader_epoch == earliest.leader_epoch == (2 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "time"),
    [(0, 0, 1000), (1000, 0, 1000), (1001, 2, 3000), (3000, 2, 3000), (3001, -1, -1)],
)
def test_a_point_in_time_is_found(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, timestamp: int, offset: int, time: int
) -> None:
    three_batches(replicas)
    result = found(offsets, 7, asked("t", timestamp))
    assert (result.error_code, result.offset, result.timestamp) == (0, offset, time)


@pytest.mark.parametrize(("timestamp", "since", "offset"), [(-3, 7, 2), (-4, 8, 0), (-5, 9, -1)])
def test_special_timestamps_mean_something_from_their_version_on(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, timestamp: int, since: int, offset: int
) -> None:
    three_batches(replicas)
    for version in range(10):
        result = found(offsets, version, asked("t", timestamp))
        if version < since:
            assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
        else:
            assert (result.error_code, result.offset) == (0, offset)


def test_version_0_lists_where_segments_begin(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    three_batches(replicas)
    replicas.led("t", 0).log.roll()
    three = a_batch(3)
    replicas.led("t", 0).append(three, acks=1, is_client=True)
    latest = found(offsets, 0, asked("t", -1, count=10))
    assert list(latest.old_style_offsets) == [9, 6, 0]
    assert list(found(offsets, 0, asked("t", -2)).old_style_offsets) == [0]
    assert list(found(offsets, 0, asked("t", -1)).old_style_offsets) == [9]


def test_consumers_are_told_of_nothing_that_is_not_committed(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    replicas.led("t", 0).append(a_batch(2, timestamp_ms=5), acks=1, is_client=True)
    assert found(offsets, 7, asked("t", -1)).offset == 0
    assert found(offsets, 7, asked("t", 0)).offset == -1
    inside = SomePeer(is_internal=True)
    answer = offsets.list_offsets(call(asked("t", -1, replica_id=2), 7, peer=inside))
    assert answer.topics[0].partitions[0].offset == 2


@pytest.mark.parametrize("version", range(10))
def test_a_replica_id_on_a_client_listener_is_a_consumers_question(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, shelf: ManualLogManager, version: int
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    replicas.led("t", 0).append(a_batch(2, timestamp_ms=5), acks=1, is_client=True)
    for timestamp in (-1, 0) if version else (-1,):
        for isolation in (0, 1) if version >= 2 else (0,):
            told = []
            for replica_id in (-1, 0, 2):
                request = asked("t", timestamp, replica_id=replica_id)
                request.isolation_level = isolation
                told.append(found(offsets, version, request))
            assert told[0] == told[1] == told[2]
            assert told[0].error_code == 0
            assert max(told[0].offset, *told[0].old_style_offsets, -1) <= 0
    known = replicas.led("t", 0).followers.get(2)
    assert known is not None
    assert known.log_end == -1


@pytest.mark.parametrize("version", [3, 4])
def test_the_end_of_an_epoch_is_told_whatever_replica_a_client_says_it_is(
    replicas: ReplicaManager, version: int
) -> None:
    three_batches(replicas, epoch=2)
    handler = OffsetForLeaderEpochHandler(replicas, StaleLeaders(lambda: True))
    for replica_id in (-2, -1, 0, 1, 2):
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=replica_id,
            topics=[
                offset_for_leader_epoch.Topic(
                    topic="t",
                    partitions=[offset_for_leader_epoch.Partition(partition=0, leader_epoch=2)],
                )
            ],
        )
        answer = handler.offset_for_leader_epoch(call(request, version))
        assert answer.topics[0].partitions[0].end_offset == 6


def test_after_an_election_the_end_is_not_known_until_it_is_committed(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    lead(replicas, "t")
    replicas.led("t", 0).append(a_batch(2), acks=1, is_client=True)
    lead(replicas, "t", epoch=1)
    assert found(offsets, 5, asked("t", -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert found(offsets, 4, asked("t", -1)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert found(offsets, 5, asked("t", 0)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert found(offsets, 5, asked("t", -2)).error_code == 0


def test_offsets_are_refused_with_the_code_of_the_place(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t", epoch=4)
    follow(replicas, "followed")
    codes = [found(offsets, 4, asked(topic, -1)).error_code for topic in ("nowhere", "followed")]
    codes += [found(offsets, 4, asked("t", -1, epoch=epoch)).error_code for epoch in (3, 4, 5)]
    assert codes == [3, 6, 74, 0, 75]
    twice = asked("t", -1)
    twice.topics = [twice.topics[0], twice.topics[0]]
    assert found(offsets, 4, twice).error_code == ErrorCode.INVALID_REQUEST
    assert found(offsets, 0, twice).error_code == 0, "version 0 does not mind"


@pytest.mark.parametrize("version", range(10))
def test_no_offset_is_told_of_a_log_whose_directory_has_failed(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, shelf: ManualLogManager, version: int
) -> None:
    three_batches(replicas)
    follow(replicas, "followed")
    for topic in ("t", "followed"):
        shelf.log(topic).take_offline("gone")
    for timestamp, since in ((-1, 0), (-2, 0), (1000, 1), (-3, 7), (-4, 8), (-5, 9)):
        if version >= since:
            result = found(offsets, version, asked("t", timestamp))
            assert (result.error_code, result.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert not result.old_style_offsets
    debugger = asked("followed", -2, replica_id=-2)
    assert found(offsets, version, debugger).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_debugging_tool_may_ask_a_follower(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    follow(replicas, "followed")
    assert found(offsets, 3, asked("followed", -2)).error_code == 6
    assert found(offsets, 3, asked("followed", -2, replica_id=-2)).offset == 0
    assert found(offsets, 3, asked("nowhere", -2, replica_id=-2)).error_code == 3


@pytest.mark.parametrize("version", range(5))
def test_the_end_of_a_leader_epoch_is_found(replicas: ReplicaManager, version: int) -> None:
    three_batches(replicas, epoch=2)
    lead(replicas, "t", epoch=5)
    handler = OffsetForLeaderEpochHandler(replicas, StaleLeaders(lambda: True))
    expected = {2: (2, 6), 3: (2, 6), 5: (5, 6), 6: (-1, -1), -1: (-1, -1)}
    for epoch, (known, end) in expected.items():
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.Topic(
                    topic=topic,
                    partitions=[offset_for_leader_epoch.Partition(partition=0, leader_epoch=epoch)],
                )
                for topic in ("t", "nowhere")
            ]
        )
        if version >= 3:
            request.replica_id = -1
        answer = over_the_wire(handler.offset_for_leader_epoch(call(request, version)), version)
        [result], [unknown] = (topic.partitions for topic in answer.topics)
        assert result.end_offset == end
        assert result.leader_epoch == (known if version >= 1 else -1)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(5))
def test_no_end_of_an_epoch_is_told_of_a_log_whose_directory_has_failed(
    replicas: ReplicaManager, shelf: ManualLogManager, version: int
) -> None:
    three_batches(replicas, epoch=2)
    shelf.log("t").take_offline("gone")
    handler = OffsetForLeaderEpochHandler(replicas, StaleLeaders(lambda: True))
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=[
            offset_for_leader_epoch.Topic(
                topic="t",
                partitions=[offset_for_leader_epoch.Partition(partition=0, leader_epoch=2)],
            )
        ],
    )
    answer = over_the_wire(handler.offset_for_leader_epoch(call(request, version)), version)
    result = answer.topics[0].partitions[0]
    assert (result.error_code, result.end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
