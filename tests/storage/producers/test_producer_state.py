"""Numbered batches: duplicates answered, gaps refused, also after a restart.

Source: docs/spec/log.md §7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log.log import Appended, Log
from barnabas.broker.storage.producers.producer_replay import replay_producers
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots, format_snapshot
from barnabas.protocol.errors import ErrorCode, Refused
from tests.records.vectors import of
from tests.storage.rig import T0, Rig, batch, read_all

ID = 99

DAY_MS = 86_400_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "t-0")


def send(rig: Rig, sequence: int, count: int = 1, epoch: int = 0, **fields: Any) -> Appended:
    numbered = batch(count, producer_id=ID, producer_epoch=epoch, base_sequence=sequence, **fields)
    return rig.log.append(numbered, leader_epoch=0, is_client=True)


def code_of(rig: Rig, sequence: int, count: int = 1, epoch: int = 0, **fields: Any) -> ErrorCode:
    end_offset = rig.log.end_offset
    with pytest.raises(Refused) as refused:
        send(rig, sequence, count, epoch, **fields)
    assert rig.log.end_offset == end_offset
    return refused.value.code


def test_a_repeated_batch_is_answered_with_its_first_offsets(rig: Rig) -> None:
    rig.append(count=3)
    first = send(rig, 0, count=2)
    send(rig, 2)
    again = send(rig, 0, count=2)
    assert (
        (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (3, 4)
    )
    assert (first.is_duplicate, again.is_duplicate, rig.log.end_offset) == (False, True, 6)


async def test_a_repeated_batch_is_recognised_after_a_restart(rig: Rig) -> None:
    send(rig, 0)
    last = send(rig, 1, count=2)
    await rig.restart()
    assert send(rig, 1, count=2).base_offset == last.base_offset
    assert rig.log.end_offset == 3


async def test_every_one_of_the_last_five_is_recognised_after_a_crash(rig: Rig) -> None:
    sent = [send(rig, sequence).base_offset for sequence in range(6)]
    await rig.crash()
    assert [send(rig, sequence).base_offset for sequence in range(1, 6)] == sent[1:]


def test_a_duplicate_older_than_the_last_five_is_out_of_order(rig: Rig) -> None:
    for sequence in range(6):
        send(rig, sequence)
    assert code_of(rig, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(rig, 1).is_duplicate


def test_a_gap_in_the_sequence_is_refused(rig: Rig) -> None:
    send(rig, 0)
    assert code_of(rig, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(rig, 1).base_offset == 1


def test_an_unknown_producer_may_begin_anywhere(rig: Rig) -> None:
    assert send(rig, 17).base_offset == 0


def test_an_older_producer_epoch_is_refused(rig: Rig) -> None:
    send(rig, 0, epoch=3)
    assert code_of(rig, 0, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_producer_epoch_begins_at_sequence_0(rig: Rig) -> None:
    send(rig, 0, epoch=3)
    assert code_of(rig, 1, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(rig, 0, epoch=4).base_offset == 1
    assert not send(rig, 1, epoch=4).is_duplicate


def test_sequence_0_follows_the_greatest(rig: Rig) -> None:
    rig.log.append(bytearray(of("v2-txn-seqwrap")), leader_epoch=0, is_client=True)
    ((_, producer),) = list(rig.log.producers)
    assert producer.next_sequence(producer.epoch) == 1
    send(rig, 2**31 - 2, count=2, epoch=9)
    assert send(rig, 0, epoch=9).base_offset == 5


def test_a_batch_outside_an_open_transaction_is_refused(rig: Rig) -> None:
    send(rig, 0, is_transactional=True)
    assert code_of(rig, 1) == ErrorCode.INVALID_TXN_STATE
    assert send(rig, 1, is_transactional=True).base_offset == 1


def test_a_coordinators_batch_is_only_judged_by_its_epoch(rig: Rig) -> None:
    send(rig, 5, epoch=2)
    for epoch, is_welcome in ((2, True), (1, False)):
        own = batch(producer_id=ID, producer_epoch=epoch, base_sequence=-1)
        if is_welcome:
            rig.log.append(own, leader_epoch=0, is_client=False)
        else:
            with pytest.raises(Refused):
                rig.log.append(own, leader_epoch=0, is_client=False)


def test_a_duplicate_of_a_stamped_batch_repeats_its_time(rig: Rig) -> None:
    stamped = batch(producer_id=ID, producer_epoch=0, base_sequence=0, time=T0 + 5)
    stamped[22] |= 0x08
    for is_duplicate in (False, True):
        appended = rig.log.append(bytearray(stamped), leader_epoch=0, is_client=True)
        assert (appended.timestamp, appended.is_duplicate) == (T0 + 5, is_duplicate)


def test_silent_producers_are_forgotten_unless_a_transaction_is_open(rig: Rig) -> None:
    send(rig, 0)
    open_one = batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    rig.append(open_one)
    for now in (T0 + 5000, T0 + 6000):
        rig.log.producers.expire(now, 1000)
        assert len(rig.log.producers) == 2
    rig.log.producers.expire(T0 + 6001, 1000)
    assert [producer_id for producer_id, _ in rig.log.producers] == [7]


async def test_a_producer_of_old_records_is_not_silent(rig: Rig) -> None:
    send(rig, 0, time=T0 - 10 * DAY_MS)
    await rig.crash()
    assert send(rig, 0, time=T0 - 10 * DAY_MS).is_duplicate
    rig.log.producers.expire(T0, DAY_MS)
    assert send(rig, 0, time=T0 - 10 * DAY_MS).is_duplicate


def test_a_follower_that_is_elected_judges_as_the_old_leader_did(tmp_path: Path) -> None:
    leader, follower = (Rig(tmp_path / f"{name}-0") for name in ("leader", "follower"))
    sent = [send(leader, sequence).base_offset for sequence in range(6)]
    follower.log.append_as_follower(read_all(leader.log))
    for rig in (leader, follower):
        assert [send(rig, sequence).base_offset for sequence in range(1, 6)] == sent[1:]
        assert code_of(rig, 0) == code_of(rig, 7) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(rig, 6).base_offset == 6


async def test_a_producer_long_silent_is_forgotten_at_the_start(rig: Rig) -> None:
    send(rig, 0, time=T0 - 10 * DAY_MS)
    await rig.restart()
    assert len(rig.log.producers) == 0


@pytest.mark.parametrize("how", [Rig.restart, Rig.crash])
async def test_producers_are_the_same_without_snapshots(
    tmp_path: Path, how: Callable[[Rig], Awaitable[Log]]
) -> None:
    rig = Rig(tmp_path / "t-0", segment_bytes=200)
    for sequence in range(8):
        send(rig, sequence, is_transactional=sequence > 4)
    before = format_snapshot(rig.log.producers)
    log = await how(rig)
    assert format_snapshot(log.producers) == before
    nothing = ProducerSnapshots(rig.files, rig.directory)
    segments = log.segments.view.segments
    replayed = at_once(replay_producers(segments, nothing, 0, log.end_offset))
    assert format_snapshot(replayed) == before


def test_truncation_forgets_what_the_dropped_batches_said(rig: Rig) -> None:
    for sequence in range(3):
        send(rig, sequence)
    rig.log.truncate_to(1)
    assert not send(rig, 1).is_duplicate
    assert code_of(rig, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
