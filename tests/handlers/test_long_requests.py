"""Requests that ask about very much are answered over many turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.broker.handlers import fetch as fetch_handler
from barnabas.broker.handlers import fetch_sessions
from barnabas.broker.handlers.call import Call, LongCall
from barnabas.broker.handlers.conversion_process import ConversionProcess
from barnabas.broker.handlers.cooperative import TURN_STEPS
from barnabas.broker.handlers.fetch import READ_STEPS
from barnabas.broker.handlers.fetch_sessions import PartitionRead
from barnabas.broker.handlers.inline_work import BATCH_STEPS
from barnabas.broker.handlers.list_offsets import MAX_TIMESTAMP, SEARCH_STEPS, ListOffsetsHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.stale_leaders import StaleLeaders
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch, offset_for_leader_epoch
from barnabas.protocol.records import batch
from tests.handlers.peer import answered, call, over_the_wire
from tests.handlers.test_conversion_process import pids
from tests.handlers.test_fetch import produce, serving
from tests.handlers.test_fetch import request as request_of
from tests.handlers.test_fetch_topic_ids import T, tell
from tests.handlers.test_inline_work import conversions, worst_turn
from tests.handlers.test_offsets_and_epochs import asked, three_batches
from tests.harness.hostile_batches import HOSTILE, NOW_MS
from tests.replication.logs import a_batch, follow, lead, turns

__all__ = ["conversions"]

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TurnCounter:
    """Counts the turns of the loop while it is entered."""

    def __init__(self) -> None:
        self.turns = 0
        self._is_over = False

    def _turn(self) -> None:
        self.turns += 1
        if not self._is_over:
            asyncio.get_running_loop().call_soon(self._turn)

    def __enter__(self) -> TurnCounter:
        self._turn()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True


@pytest.fixture
async def offsets(replicas: ReplicaManager, conversions: ConversionProcess) -> ListOffsetsHandler:
    return ListOffsetsHandler(replicas, conversions)


async def by_time(handler: ListOffsetsHandler, *timestamps: int) -> list[Any]:
    answer = handler.list_offsets(call(asked("t", *timestamps), 7))
    answer = await answer if asyncio.iscoroutine(answer) else answer
    return [(one.error_code, one.offset) for one in answer.topics[0].partitions]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("timestamp", [NOW_MS, MAX_TIMESTAMP])
async def test_a_time_in_a_hostile_batch_is_found_in_the_process(
    offsets: ListOffsetsHandler,
    replicas: ReplicaManager,
    conversions: ConversionProcess,
    name: str,
    timestamp: int,
) -> None:
    lead(replicas, "t")
    log = replicas.led("t", 0)
    log.append(a_batch(2, timestamp_ms=NOW_MS - 1), acks=1, is_client=True)
    log.append(bytearray(HOSTILE[name]()), acks=1, is_client=True)
    assert await by_time(offsets, timestamp) == [(0, 2)]
    assert pids(conversions)
    assert worst_turn(conversions) <= 2 * BATCH_STEPS
    [earliest] = answered(offsets.list_offsets(call(asked("t", -2), 7))).topics[0].partitions
    assert earliest.offset == 0


async def test_a_batch_that_cannot_be_read_is_told_alike_from_the_process(
    offsets: ListOffsetsHandler, replicas: ReplicaManager, conversions: ConversionProcess
) -> None:
    lead(replicas, "t")
    data = bytearray(HOSTILE["gzip members"]())
    data[-8:] = bytes(8)
    batch.reseal(data)
    log = replicas.led("t", 0)
    log.append(data, acks=1, is_client=True)
    with pytest.raises(Refused) as here:
        log.log.offset_for_time(NOW_MS, 1)
    assert await by_time(offsets, NOW_MS) == [(here.value.code, -1)]
    assert pids(conversions)


async def test_an_ordinary_time_is_found_within_the_call(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    three_batches(replicas)
    answer = answered(offsets.list_offsets(call(asked("t", 3000), 7)))
    assert answer.topics[0].partitions[0].offset == 2


async def test_the_ends_of_very_many_partitions_take_many_turns(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    three_batches(replicas)
    count = 5 * TURN_STEPS
    request = asked("t", *[-1] * count)
    with TurnCounter() as counter:
        answer = await offsets.list_offsets(call(request, 7))
    assert counter.turns >= 2 * count // TURN_STEPS
    [topic] = answer.topics
    assert [one.partition_index for one in topic.partitions] == list(range(count))
    assert [one.error_code for one in topic.partitions] == [0] + [UNKNOWN] * (count - 1)
    assert topic.partitions[0].offset == 6


async def test_many_times_take_more_turns_than_ends(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    three_batches(replicas)
    count = 4 * TURN_STEPS // SEARCH_STEPS
    with TurnCounter() as counter:
        assert (await by_time(offsets, *[3000] * count))[0] == (0, 2)
    assert counter.turns >= count * SEARCH_STEPS // TURN_STEPS


async def test_a_partition_that_is_asked_about_twice_is_noticed_across_turns(
    offsets: ListOffsetsHandler, replicas: ReplicaManager
) -> None:
    three_batches(replicas)
    request = asked("t", *[-1] * (2 * TURN_STEPS))
    request.topics[0].partitions[-1].partition_index = 0
    answer = await offsets.list_offsets(call(request, 7))
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes[0] == codes[-1] == ErrorCode.INVALID_REQUEST
    assert set(codes[1:-1]) == {UNKNOWN}


def long_call(request: Any, version: int) -> LongCall:
    short = call(request, version)
    return LongCall(short.key, version, short.client_id, short.request, short.peer)


def many_partitions(count: int, **more: Any) -> fetch.FetchRequest:
    """Partition 0 of t, others that are not there, and the last of them once more."""
    indexes = [*range(count), count - 1]
    partitions = [fetch.Partition(partition=one, partition_max_bytes=1 << 20) for one in indexes]
    request: fetch.FetchRequest = request_of(
        fetch.Topic(topic="t", partitions=partitions), max_bytes=1 << 20, **more
    )
    return request


@pytest.mark.parametrize("version", [3, 4, 12])
async def test_very_many_partitions_are_fetched_over_many_turns_as_in_one(
    replicas: ReplicaManager, version: int
) -> None:
    lead(replicas, "t")
    produce(replicas, "t", 3)
    request = many_partitions(5 * READ_STEPS)
    with TurnCounter() as counter:
        long = await serving(replicas).fetch(long_call(request, version))
    assert counter.turns >= 5
    short = serving(replicas).fetch(call(request, version))
    short = await short if asyncio.iscoroutine(short) else answered(short)
    long.session_id = short.session_id = 0
    assert over_the_wire(long, version) == over_the_wire(short, version)
    assert long.responses[0].partitions[0].records


async def test_a_long_fetch_waits_until_there_is_something(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    request = many_partitions(1, max_wait_ms=30_000)
    waiting = asyncio.ensure_future(serving(replicas).fetch(long_call(request, 12)))
    await turns(20)
    assert not waiting.done()
    produce(replicas, "t", 2)
    answer = await waiting
    assert answer.responses[0].partitions[0].high_watermark == 2
    assert answer.responses[0].partitions[0].records


@pytest.mark.parametrize("is_led_elsewhere", [False, True])
async def test_what_is_appended_while_a_long_fetch_reads_ends_its_wait(
    replicas: ReplicaManager, monkeypatch: pytest.MonkeyPatch, is_led_elsewhere: bool
) -> None:
    """Also to a partition that was read before, and also when that is led elsewhere by then."""
    monkeypatch.setattr(fetch_handler, "READ_STEPS", 1)
    for index in range(3):
        lead(replicas, "t", index)
    handler = serving(replicas)
    read_some, seen = handler._read_some, list[int]()

    def read(
        call: Call, wanted: Sequence[PartitionRead], left: int, is_first: bool
    ) -> tuple[int, bool]:
        index = wanted[0].partition.partition
        if index == 2 and index not in seen:
            if is_led_elsewhere:
                follow(replicas, "t", epoch=1)
            else:
                produce(replicas, "t", 2)
        seen.append(index)
        return read_some(call, wanted, left, is_first)

    monkeypatch.setattr(handler, "_read_some", read)
    request = many_partitions(3, max_wait_ms=30_000)
    waiting = asyncio.ensure_future(handler.fetch(long_call(request, 12)))
    await turns(100)
    assert waiting.done()  # no timer is over in so few turns
    first, *others = (await waiting).responses[0].partitions
    if is_led_elsewhere:
        assert first.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        assert first.records
    assert not any(one.error_code or one.records for one in others)
    assert not any(bool(replicas.led("t", index).fetch_waiters) for index in (1, 2))


@pytest.mark.parametrize("version", [12, 13, 14, 15, 16, 17])
async def test_who_poses_as_a_follower_is_refused_in_a_long_request_too(
    replicas: ReplicaManager, version: int
) -> None:
    """From version 15 on a replica id stands in another field."""
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    partition = replicas.led("t", 0)
    partition.append(a_batch(1), acks=1, is_client=True)
    cache = MetadataCache()
    tell(cache, ("t", T, 1))
    asked_by = {"replica_state": fetch.ReplicaState(replica_id=2)} if version >= 15 else {}
    for offset in (0, 1):
        request = many_partitions(1, max_wait_ms=60_000, session_epoch=0, replica_id=2, **asked_by)
        for topic in request.topics:
            topic.topic_id = T
            for one in topic.partitions:
                one.fetch_offset = offset
        handler = serving(replicas, cache=cache)
        answer = over_the_wire(await handler.fetch(long_call(request, version)), version)
        [result] = answer.responses[0].partitions
        assert (answer.session_id, result.error_code, result.records) == (0, 6, b"")
    assert partition.high_watermark == 0
    known = partition.followers.get(2)
    assert known is None or known.log_end == -1


async def test_a_consumer_that_fetches_very_much_is_not_remembered(
    replicas: ReplicaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "CONSUMER_PARTITIONS_MAX", 10)
    monkeypatch.setattr(fetch_handler, "CONSUMER_PARTITIONS_MAX", 10)
    lead(replicas, "t")
    handler = serving(replicas)
    large = await handler.fetch(long_call(many_partitions(11, session_epoch=0), 12))
    assert (large.error_code, large.session_id) == (0, 0)
    small = answered(handler.fetch(call(many_partitions(10, session_epoch=0), 12)))
    assert small.session_id
    more = many_partitions(20, session_id=small.session_id, session_epoch=1)
    refused = await handler.fetch(long_call(more, 12))
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_large_session_is_read_over_many_turns(
    replicas: ReplicaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "TURN_STEPS", 50)
    lead(replicas, "t")
    handler = serving(replicas)
    count = 5 * READ_STEPS
    begun = answered(handler.fetch(call(many_partitions(count, session_epoch=0), 12)))
    produce(replicas, "t", 2)
    again = request_of(max_wait_ms=0, session_id=begun.session_id, session_epoch=1)
    with TurnCounter() as counter:
        answer = await handler.fetch(call(again, 12))
    assert counter.turns >= 5
    told = {one.partition_index: one for one in answer.responses[0].partitions}
    assert told[0].high_watermark == 2
    assert told[0].records


async def test_the_epochs_of_very_many_partitions_take_many_turns(replicas: ReplicaManager) -> None:
    three_batches(replicas, epoch=2)
    count = 5 * TURN_STEPS
    wanted = [
        offset_for_leader_epoch.Partition(partition=index, leader_epoch=2) for index in range(count)
    ]
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[offset_for_leader_epoch.Topic(topic="t", partitions=wanted)]
    )
    with TurnCounter() as counter:
        answer = await OffsetForLeaderEpochHandler(
            replicas, StaleLeaders(lambda: True)
        ).offset_for_leader_epoch(call(request, 3))
    assert counter.turns >= count // TURN_STEPS
    first, *others = answer.topics[0].partitions
    assert (first.error_code, first.leader_epoch, first.end_offset) == (0, 2, 6)
    assert {one.error_code for one in others} == {UNKNOWN}
    assert [one.partition for one in others] == list(range(1, count))
