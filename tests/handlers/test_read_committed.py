"""Fetch and ListOffsets of committed records: docs/spec/log.md §4.4, §6.5 and §7.3."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages import list_offsets
from barnabas.protocol.records.control import Marker
from tests.handlers.peer import SomePeer, answered, call, over_the_wire
from tests.handlers.test_fetch import offsets, request, results, serving, wanted
from tests.handlers.test_offsets_and_epochs import asked, found
from tests.replication.logs import NOW_MS, a_batch, follow, lead, turns
from tests.replication.test_last_stable_offset import append, in_transaction, marker

COMMITTED = 1
VERSION = 11


@pytest.fixture
async def handler(replicas: ReplicaManager) -> FetchHandler:
    lead(replicas, "t")
    return serving(replicas)


def fetched(
    handler: FetchHandler, offset: int = 0, version: int = VERSION, **more: Any
) -> messages.PartitionResult:
    more = {"isolation_level": COMMITTED, **more}
    answer = answered(handler.fetch(call(request(wanted("t", offset), **more), version)))
    return results(over_the_wire(answer, version))[0]


def aborted(result: messages.PartitionResult) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()]


async def test_read_committed_stops_at_the_first_offset_of_an_open_transaction(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    append(replicas.led("t", 0), a_batch(3), in_transaction(7), a_batch(2))
    result = fetched(handler)
    assert offsets(result.records) == [0, 1, 2]
    assert (result.high_watermark, result.last_stable_offset) == (6, 3)
    assert aborted(result) == []
    assert (fetched(handler, 4).records, fetched(handler, 4).error_code) == (b"", 0)
    assert fetched(handler, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_others_read_on_and_are_told_of_the_stable_offset(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    append(replicas.led("t", 0), a_batch(3), in_transaction(7), a_batch(2))
    result = fetched(handler, isolation_level=0)
    assert offsets(result.records) == [0, 1, 2, 3, 4, 5]
    assert (result.last_stable_offset, result.aborted_transactions) == (3, None)


@pytest.mark.parametrize("version", range(4, 13))
async def test_aborted_transactions_of_what_was_read_are_named(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    partition = replicas.led("t", 0)
    append(partition, in_transaction(7), in_transaction(8), a_batch(), in_transaction(9))
    append(partition, marker(8, Marker.ABORT), marker(7), marker(9, Marker.ABORT))
    assert aborted(fetched(handler, version=version)) == [(8, 1), (9, 3)]
    assert aborted(fetched(handler, 5, version)) == [(9, 3)]
    assert aborted(fetched(handler, 7, version)) == []


async def test_a_follower_gets_everything_whatever_it_asks_for(replicas: ReplicaManager) -> None:
    lead(replicas, "t", replicas=[1, 2])
    append(replicas.led("t", 0), a_batch(), in_transaction(7))
    asking = request(wanted("t"), isolation_level=COMMITTED, replica_id=2)
    answer = serving(replicas).fetch(call(asking, VERSION, peer=SomePeer(is_internal=True)))
    assert offsets(results(answered(answer))[0].records) == [0, 1]


async def test_a_waiting_reader_of_committed_records_is_answered_when_a_transaction_ends(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    partition = replicas.led("t", 0)
    append(partition, in_transaction(7))
    asking = request(wanted("t"), isolation_level=COMMITTED, max_wait_ms=60_000)
    pending = handler.fetch(call(asking, VERSION))
    assert isinstance(pending, PendingResponse)
    append(partition, a_batch(4))
    await turns()
    assert not pending.is_resolved
    append(partition, marker(7, Marker.ABORT))
    await turns()
    result = results(answered(pending))[0]
    assert offsets(result.records) == [0, 1, 2, 3, 4, 5]
    assert aborted(result) == [(7, 0)]


async def test_nothing_is_left_of_aborted_transactions_read_before_an_error(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    partition = replicas.led("t", 0)
    append(partition, in_transaction(7), marker(7, Marker.ABORT))
    asking = request(wanted("t"), isolation_level=COMMITTED, max_wait_ms=60_000, min_bytes=1 << 20)
    pending = handler.fetch(call(asking, VERSION))
    follow(replicas, "t")
    await turns()
    result = results(answered(pending))[0]
    assert (result.error_code, aborted(result)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


def looked_up(
    replicas: ReplicaManager, timestamp: int, isolation_level: int = COMMITTED
) -> list_offsets.PartitionResult:
    question = asked("t", timestamp)
    question.isolation_level = isolation_level
    return found(ListOffsetsHandler(replicas), 7, question)


def test_the_latest_of_committed_records_is_the_last_stable_offset(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, "t")
    append(replicas.led("t", 0), a_batch(2), in_transaction(7), a_batch(2))
    assert looked_up(replicas, -1).offset == 2
    assert looked_up(replicas, -1, isolation_level=0).offset == 5
    append(replicas.led("t", 0), marker(7))
    assert looked_up(replicas, -1).offset == 6


def test_a_time_above_the_last_stable_offset_is_not_found(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    append(replicas.led("t", 0), a_batch(timestamp_ms=NOW_MS - 1), in_transaction(7))
    assert (looked_up(replicas, NOW_MS).offset, looked_up(replicas, NOW_MS - 1).offset) == (-1, 0)
    assert looked_up(replicas, NOW_MS, isolation_level=0).offset == 1
