"""Numbered batches: duplicates answered, gaps refused, also after a restart.

Source: docs/spec/log.md §7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log.log import Log, LogAppendInfo
from barnabas.broker.storage.producers.producer_replay import replay_producers
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots, format_snapshot
from barnabas.protocol.errors import ErrorCode, Refused
from tests.records.vectors import of
from tests.storage.log_harness import T0, LogHarness, batch, read_all

ID = 99

DAY_MS = 86_400_000


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path / "t-0")


def send(
    harness: LogHarness, sequence: int, count: int = 1, epoch: int = 0, **fields: Any
) -> LogAppendInfo:
    numbered = batch(count, producer_id=ID, producer_epoch=epoch, base_sequence=sequence, **fields)
    return harness.log.append(numbered, leader_epoch=0, is_client=True)


def code_of(
    harness: LogHarness, sequence: int, count: int = 1, epoch: int = 0, **fields: Any
) -> ErrorCode:
    end_offset = harness.log.end_offset
    with pytest.raises(Refused) as refused:
        send(harness, sequence, count, epoch, **fields)
    assert harness.log.end_offset == end_offset
    return refused.value.code


def test_a_repeated_batch_is_answered_with_its_first_offsets(harness: LogHarness) -> None:
    harness.append(count=3)
    first = send(harness, 0, count=2)
    send(harness, 2)
    again = send(harness, 0, count=2)
    assert (
        (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (3, 4)
    )
    assert (first.is_duplicate, again.is_duplicate, harness.log.end_offset) == (False, True, 6)


async def test_a_repeated_batch_is_recognised_after_a_restart(harness: LogHarness) -> None:
    send(harness, 0)
    last = send(harness, 1, count=2)
    await harness.restart()
    assert send(harness, 1, count=2).base_offset == last.base_offset
    assert harness.log.end_offset == 3


async def test_every_one_of_the_last_five_is_recognised_after_a_crash(harness: LogHarness) -> None:
    sent = [send(harness, sequence).base_offset for sequence in range(6)]
    await harness.crash()
    assert [send(harness, sequence).base_offset for sequence in range(1, 6)] == sent[1:]


def test_a_duplicate_older_than_the_last_five_is_out_of_order(harness: LogHarness) -> None:
    for sequence in range(6):
        send(harness, sequence)
    assert code_of(harness, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(harness, 1).is_duplicate


def test_a_gap_in_the_sequence_is_refused(harness: LogHarness) -> None:
    send(harness, 0)
    assert code_of(harness, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(harness, 1).base_offset == 1


def test_an_unknown_producer_may_begin_anywhere(harness: LogHarness) -> None:
    assert send(harness, 17).base_offset == 0


def test_an_older_producer_epoch_is_refused(harness: LogHarness) -> None:
    send(harness, 0, epoch=3)
    assert code_of(harness, 0, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_producer_epoch_begins_at_sequence_0(harness: LogHarness) -> None:
    send(harness, 0, epoch=3)
    assert code_of(harness, 1, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(harness, 0, epoch=4).base_offset == 1
    assert not send(harness, 1, epoch=4).is_duplicate


def test_sequence_0_follows_the_greatest(harness: LogHarness) -> None:
    harness.log.append(bytearray(of("v2-txn-seqwrap")), leader_epoch=0, is_client=True)
    ((_, producer),) = list(harness.log.producers)
    assert producer.next_sequence(producer.epoch) == 1
    send(harness, 2**31 - 2, count=2, epoch=9)
    assert send(harness, 0, epoch=9).base_offset == 5


def test_a_batch_outside_an_open_transaction_is_refused(harness: LogHarness) -> None:
    send(harness, 0, is_transactional=True)
    assert code_of(harness, 1) == ErrorCode.INVALID_TXN_STATE
    assert send(harness, 1, is_transactional=True).base_offset == 1


def test_a_coordinators_batch_is_only_judged_by_its_epoch(harness: LogHarness) -> None:
    send(harness, 5, epoch=2)
    for epoch, is_welcome in ((2, True), (1, False)):
        own = batch(producer_id=ID, producer_epoch=epoch, base_sequence=-1)
        if is_welcome:
            harness.log.append(own, leader_epoch=0, is_client=False)
        else:
            with pytest.raises(Refused):
                harness.log.append(own, leader_epoch=0, is_client=False)


def test_a_duplicate_of_a_stamped_batch_repeats_its_time(harness: LogHarness) -> None:
    stamped = batch(producer_id=ID, producer_epoch=0, base_sequence=0, time=T0 + 5)
    stamped[22] |= 0x08
    for is_duplicate in (False, True):
        appended = harness.log.append(bytearray(stamped), leader_epoch=0, is_client=True)
        assert (appended.timestamp, appended.is_duplicate) == (T0 + 5, is_duplicate)


def test_silent_producers_are_forgotten_unless_a_transaction_is_open(harness: LogHarness) -> None:
    send(harness, 0)
    open_one = batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    harness.append(open_one)
    for now in (T0 + 5000, T0 + 6000):
        harness.log.producers.expire(now, 1000)
        assert len(harness.log.producers) == 2
    harness.log.producers.expire(T0 + 6001, 1000)
    assert [producer_id for producer_id, _ in harness.log.producers] == [7]


async def test_a_producer_of_old_records_is_not_silent(harness: LogHarness) -> None:
    send(harness, 0, time=T0 - 10 * DAY_MS)
    await harness.crash()
    assert send(harness, 0, time=T0 - 10 * DAY_MS).is_duplicate
    harness.log.producers.expire(T0, DAY_MS)
    assert send(harness, 0, time=T0 - 10 * DAY_MS).is_duplicate


def test_a_follower_that_is_elected_judges_as_the_old_leader_did(tmp_path: Path) -> None:
    leader, follower = (LogHarness(tmp_path / f"{name}-0") for name in ("leader", "follower"))
    sent = [send(leader, sequence).base_offset for sequence in range(6)]
    follower.log.append_as_follower(read_all(leader.log))
    for harness in (leader, follower):
        assert [send(harness, sequence).base_offset for sequence in range(1, 6)] == sent[1:]
        assert code_of(harness, 0) == code_of(harness, 7) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(harness, 6).base_offset == 6


async def test_a_producer_long_silent_is_forgotten_at_the_start(harness: LogHarness) -> None:
    send(harness, 0, time=T0 - 10 * DAY_MS)
    await harness.restart()
    assert len(harness.log.producers) == 0


@pytest.mark.parametrize("how", [LogHarness.restart, LogHarness.crash])
async def test_producers_are_the_same_without_snapshots(
    tmp_path: Path, how: Callable[[LogHarness], Awaitable[Log]]
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=200)
    for sequence in range(8):
        send(harness, sequence, is_transactional=sequence > 4)
    before = format_snapshot(harness.log.producers)
    log = await how(harness)
    assert format_snapshot(log.producers) == before
    nothing = ProducerSnapshots(harness.files, harness.directory)
    segments = log.segments.view.segments
    replayed = at_once(replay_producers(segments, nothing, 0, log.end_offset))
    assert format_snapshot(replayed) == before


def test_truncation_forgets_what_the_dropped_batches_said(harness: LogHarness) -> None:
    for sequence in range(3):
        send(harness, sequence)
    harness.log.truncate_to(1)
    assert not send(harness, 1).is_duplicate
    assert code_of(harness, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
