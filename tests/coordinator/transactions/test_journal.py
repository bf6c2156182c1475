"""How records come into the transaction log: check T3.3, traps T8.1, and what a batch holds.

Source: docs/spec/transactions.md §1.2 and §3.1.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)

STATE = TransactionState
ANSWERS = [
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
]
SAME_PARTITION = [name for name in "abcdefghij" if partition_of(name) == 0][:3]


@pytest.mark.parametrize(("failure", "told"), ANSWERS, ids=lambda code: code.name)
def test_every_failed_append_leaves_nothing_pending(
    transactions: TransactionsHarness, failure: ErrorCode, told: ErrorCode
) -> None:
    """T3.3, T8.1: each request that appends, and the same again once the log takes it."""
    log = transactions.log
    log.append_fails_with = failure
    assert identity(transactions.init())[0] is told
    assert transactions.transaction().pending is None
    log.append_fails_with = None
    producer = transactions.begin()
    log.append_fails_with = failure
    assert set(codes(transactions.add(producer)).values()) == {told}
    assert transactions.add_offsets(producer).code is told
    assert (transactions.state(), transactions.transaction().pending) == (STATE.EMPTY, None)
    log.append_fails_with = None
    transactions.add(producer)
    log.append_fails_with = failure
    assert transactions.commit(producer) is told
    assert transactions.abort(producer) is told
    assert identity(transactions.init())[0] is told
    assert (transactions.state(), transactions.transaction().pending) == (STATE.ONGOING, None)
    assert transactions.markers.writes == []
    log.append_fails_with = None
    assert transactions.commit(producer) is ErrorCode.NONE
    transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT


def test_an_exception_in_the_log_is_an_answer(
    transactions: TransactionsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(transactions.log, "append", fail)
        assert identity(transactions.init())[0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert transactions.begin() == (1001, 0)


def test_records_of_one_turn_and_partition_are_one_batch(
    transactions: TransactionsHarness,
) -> None:
    """Their batch is plain: no codec, no producer, not transactional."""
    asked = [transactions.hand_in_init(name) for name in SAME_PARTITION]
    transactions.turn()
    assert [identity(one) for one in asked] == [
        (ErrorCode.NONE, 1001 + number, 0) for number in range(len(asked))
    ]
    assert transactions.log.appends == [(0, len(SAME_PARTITION))]
    [data] = transactions.log.partition(0).batches
    assert (batch.codec(data), batch.producer_id(data), batch.is_transactional(data)) == (
        0,
        -1,
        False,
    )
    assert (batch.magic(data), batch.base_sequence(data)) == (2, -1)


def test_a_batch_does_not_grow_beyond_what_the_topic_takes(
    transactions: TransactionsHarness,
) -> None:
    transactions.log.bytes_max = 200
    asked = [transactions.hand_in_init(name) for name in SAME_PARTITION]
    transactions.turn()
    assert {identity(one)[0] for one in asked} == {ErrorCode.NONE}
    assert len(transactions.log.appends) > 1
    assert sum(count for _, count in transactions.log.appends) == len(SAME_PARTITION)


def test_a_record_that_is_too_large_fails_alone(transactions: TransactionsHarness) -> None:
    transactions.log.bytes_max = 160
    large = "x" * 100
    if partition_of(large):
        large += "x"
    asked = [transactions.hand_in_init(name) for name in (large, SAME_PARTITION[0])]
    transactions.turn()
    assert identity(asked[0])[0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert identity(asked[1])[0] is ErrorCode.NONE


def test_one_completion_that_fails_does_not_keep_the_others_from_their_answer(
    transactions: TransactionsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (transactions.hand_in_init(name) for name in SAME_PARTITION[:2])
    monkeypatch.setattr(first, "answers", None)
    transactions.turn()
    assert identity(second)[0] is ErrorCode.NONE


@pytest.mark.parametrize(
    ("transaction_timeout_ms", "request_timeout_ms", "within_s"),
    [(60_000, 2_000, 2.0), (3_000, 30_000, 3.0)],
)
def test_an_end_waits_for_replicas_no_longer_than_either_timeout(
    make_transactions: Callable[..., TransactionsHarness],
    transaction_timeout_ms: int,
    request_timeout_ms: int,
    within_s: float,
) -> None:
    """In Kafka EndTxn may hang for as long as the transaction may last."""
    harness = make_transactions(request_timeout_ms=request_timeout_ms)
    producer = harness.begin(timeout_ms=transaction_timeout_ms)
    harness.add(producer)
    harness.log.is_replicated = False
    asked = harness.end(producer)
    harness.wait(within_s - 0.5)
    assert not asked.is_answered
    harness.wait(0.6)
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_short_timeout_does_not_fail_those_who_may_wait(
    transactions: TransactionsHarness,
) -> None:
    first, second = SAME_PARTITION[:2]
    transactions.begin(first, timeout_ms=1000)
    transactions.begin(second, timeout_ms=60_000)
    transactions.log.is_replicated = False
    hasty = transactions.hand_in_init(first, timeout_ms=1000)
    patient = transactions.hand_in_init(second, timeout_ms=60_000)
    transactions.wait(2.0)
    assert identity(hasty)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not patient.is_answered
    transactions.log.replicate(0)
    assert identity(patient) == (ErrorCode.NONE, 1002, 1)


def test_who_comes_behind_a_fence_of_one_millisecond_has_time_for_its_replicas(
    transactions: TransactionsHarness,
) -> None:
    """Admin.fenceProducers of older clients of Java, as Connect's workers have it (KAFKA-16047)."""
    transactions.begin(timeout_ms=60_000)
    for timeout_ms, epoch in ((1, 1), (60_000, 2)):
        transactions.log.is_replicated = False
        asked = transactions.hand_in_init(timeout_ms=timeout_ms)
        transactions.wait(0.4)
        assert not asked.is_answered
        transactions.log.replicate(0)
        transactions.log.is_replicated = True
        assert identity(asked) == (ErrorCode.NONE, 1001, epoch)


def test_a_commit_whose_append_timed_out_may_be_decided_by_its_retry(
    transactions: TransactionsHarness,
) -> None:
    """The record may be committed later; the last one of the id decides."""
    producer = transactions.begin(timeout_ms=1000)
    transactions.add(producer)
    transactions.log.is_replicated = False
    asked = transactions.end(producer)
    transactions.wait(0.9)
    transactions.wait(0.2)
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    transactions.log.is_replicated = True
    transactions.log.replicate(partition_of("t"))
    transactions.wait(20.0)
    # Nobody retried: it timed out meanwhile, and is aborted under the next epoch.
    assert transactions.states()[2:] == ["PrepareCommit", "PrepareAbort", "CompleteAbort"]
    assert {one[2:] for one in transactions.markers.written} == {(1, False)}


def test_a_stop_writes_what_is_staged(transactions: TransactionsHarness) -> None:
    asked = transactions.hand_in_init("t")
    transactions.coordinator.stop()
    assert identity(asked) == (ErrorCode.NONE, 1001, 0)
    assert transactions.states() == ["Empty"]
    assert identity(transactions.init("t"))[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
