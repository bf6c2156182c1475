"""Verification guards of a log: docs/spec/transactions.md §5.3."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.producers.verification_guards import (
    NOTHING_TO_VERIFY,
    VerificationGuard,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.control import Marker
from tests.handlers.conftest import context, shelf
from tests.handlers.conftest import replicas as replicas
from tests.replication.logs import follow, lead
from tests.replication.test_last_stable_offset import append, in_transaction, marker

__all__ = ["context", "shelf"]

PID = 7
DAY_MS = 86_400_000


def guard_of(
    producers: ProducerStateManager,
    *,
    epoch: int = 0,
    sequence: int = 0,
    now_ms: int = 0,
    name: str = "mine",
) -> VerificationGuard:
    return producers.begin_verification(name, PID, epoch, sequence, now_ms)


def refusal(
    producers: ProducerStateManager, guard: VerificationGuard, epoch: int = 0, sequence: int = 0
) -> int:
    try:
        producers.check_verified(PID, epoch, sequence, guard)
    except Refused as refused:
        return refused.code
    return 0


def test_all_requests_of_a_producer_share_its_guard_until_it_is_removed() -> None:
    producers = ProducerStateManager()
    guard = guard_of(producers)
    assert guard_of(producers) is guard
    assert refusal(producers, guard) == 0
    producers.guards.remove(PID)
    assert refusal(producers, guard) == ErrorCode.INVALID_TXN_STATE
    assert refusal(producers, guard_of(producers)) == 0


@pytest.mark.parametrize("kind", [Marker.COMMIT, Marker.ABORT])
def test_a_marker_and_a_batch_remove_the_guard_on_leaders_and_followers(
    replicas: ReplicaManager, kind: Marker
) -> None:
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    log = partition.log
    for batch in (marker(PID, kind), in_transaction(PID), marker(PID)):
        guard = guard_of(log.producers, epoch=1)
        append(partition, batch)
        assert refusal(log.producers, guard, epoch=1) == ErrorCode.INVALID_TXN_STATE
    follow(replicas, "t")
    for sequence, batch in enumerate((marker(PID, kind), in_transaction(PID, 1), marker(PID))):
        guard = guard_of(log.producers, epoch=1)
        batch[:8] = log.end_offset.to_bytes(8, "big")
        log.append_as_follower(bytes(batch))
        assert refusal(log.producers, guard, epoch=1) == ErrorCode.INVALID_TXN_STATE, sequence
    assert len(log.producers.guards) == 0


def test_an_open_transaction_of_the_same_epoch_needs_no_guard(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    producers = partition.log.producers
    producers.vouch("mine", PID)
    append(partition, in_transaction(PID))
    assert guard_of(producers) is NOTHING_TO_VERIFY
    assert refusal(producers, NOTHING_TO_VERIFY) == 0
    assert guard_of(producers, epoch=1) is not NOTHING_TO_VERIFY
    append(partition, marker(PID))
    assert refusal(producers, NOTHING_TO_VERIFY) == ErrorCode.INVALID_TXN_STATE


def test_an_open_transaction_says_nothing_of_another_id(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    partition = replicas.led("t", 0)
    producers = partition.log.producers
    append(partition, in_transaction(PID))
    assert guard_of(producers) is not NOTHING_TO_VERIFY  # as after a change of leaders
    producers.vouch("mine", PID)
    assert guard_of(producers) is NOTHING_TO_VERIFY
    assert guard_of(producers, name="another's") is not NOTHING_TO_VERIFY
    append(partition, marker(PID), in_transaction(PID, 1))
    assert guard_of(producers) is NOTHING_TO_VERIFY  # a producer id never has another


def test_whose_a_producer_is_is_forgotten_with_it(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    producers = replicas.led("t", 0).log.producers
    producers.vouch("mine", PID)
    producers.expire(1, DAY_MS)
    append(replicas.led("t", 0), in_transaction(PID))
    assert guard_of(producers) is not NOTHING_TO_VERIFY


def test_a_sequence_above_the_lowest_one_is_refused_while_the_guard_stands() -> None:
    producers = ProducerStateManager()
    guard = guard_of(producers, sequence=5)
    guard_of(producers, sequence=9)
    assert refusal(producers, guard, sequence=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, guard, sequence=5) == 0
    guard_of(producers, sequence=2)
    assert refusal(producers, guard, sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    guard_of(producers, epoch=1, sequence=3)
    assert refusal(producers, guard, epoch=1, sequence=3) == 0
    guard_of(producers, epoch=0, sequence=0)
    assert refusal(producers, guard, epoch=1, sequence=3) == 0


def test_a_guard_that_nobody_uses_expires_with_producers() -> None:
    producers = ProducerStateManager()
    guard = guard_of(producers, now_ms=1000)
    producers.expire(1000 + DAY_MS, DAY_MS)
    assert refusal(producers, guard) == 0
    producers.expire(1001 + DAY_MS, DAY_MS)
    assert refusal(producers, guard) == ErrorCode.INVALID_TXN_STATE


async def test_a_truncated_log_keeps_its_guards_and_one_that_begins_anew_drops_them(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, "t")
    log = replicas.led("t", 0).log
    append(replicas.led("t", 0), in_transaction(8), in_transaction(8, 1))
    guard = guard_of(log.producers)
    follow(replicas, "t")
    log.truncate_to(1)
    assert refusal(log.producers, guard) == 0
    log.truncate_fully(10)
    assert refusal(log.producers, guard) == ErrorCode.INVALID_TXN_STATE
