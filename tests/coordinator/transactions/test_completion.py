"""From a decided end to CompleteX: checks T3.3 to T3.5, traps T8.1, T8.4 to T8.6, T8.14, T8.24.

Source: docs/spec/transactions.md §3.1, §3.3 and §3.4.
"""

from __future__ import annotations

import logging

import pytest

from barnabas.coordinator.transactions.completion import FENCED_ALARM_MS
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.test_end_txn import reach
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    partition_of,
)

STATE = TransactionState
T = partition_of("t")
FENCED = [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]


def prepared(
    transactions: TransactionsHarness, partitions: dict[str, list[int]], name: str = "t"
) -> tuple[int, int]:
    """A commit that waits for the markers of these partitions."""
    transactions.markers.is_prompt = False
    producer = transactions.begin(name)
    transactions.add(producer, partitions, name=name)
    assert transactions.commit(producer, name=name) is ErrorCode.NONE
    return producer


# -- markers -------------------------------------------------------------------------------------


def test_it_is_complete_when_the_last_marker_is_written(
    transactions: TransactionsHarness,
) -> None:
    prepared(transactions, {"orders": [0, 1, 2]})
    for left in (2, 1):
        transactions.markers.write_all(count=1)
        transactions.turn()
        assert transactions.state() is STATE.PREPARE_COMMIT
        [described] = transactions.describe("t")
        assert sum(len(topic.partitions) for topic in described.topics) == left
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT
    assert transactions.describe("t")[0].topics == []


def test_a_marker_that_is_answered_twice_counts_once(transactions: TransactionsHarness) -> None:
    """T8.4: one CompleteX for each PrepareX."""
    prepared(transactions, {"orders": [0, 1]})
    [write] = transactions.markers.writes
    for _ in range(2):
        write.on_written(("orders", 0), ErrorCode.NONE)
    transactions.turn()
    assert transactions.state() is STATE.PREPARE_COMMIT
    for _ in range(2):
        write.on_written(("orders", 1), ErrorCode.NONE)
    transactions.turn()
    write.on_written(("orders", 1), ErrorCode.NONE)
    transactions.turn()
    assert transactions.states().count("CompleteCommit") == 1
    assert not write.is_current()


def test_an_answer_about_another_partition_changes_nothing(
    transactions: TransactionsHarness,
) -> None:
    prepared(transactions, {"orders": [0]})
    [write] = transactions.markers.writes
    write.on_written(("orders", 5), ErrorCode.NONE)
    transactions.turn()
    assert transactions.state() is STATE.PREPARE_COMMIT


def test_a_commit_with_a_deleted_topic_completes(transactions: TransactionsHarness) -> None:
    """T3.5: whoever sends markers says NONE of a topic that is gone for good."""
    producer = prepared(transactions, {"orders": [0], "clicks": [0]})
    del transactions.topics.counts["clicks"]
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.commit(producer) is ErrorCode.NONE
    assert transactions.state() is STATE.COMPLETE_COMMIT


def test_a_transaction_without_partitions_is_complete_at_once(
    transactions: TransactionsHarness,
) -> None:
    producer = prepared(transactions, {"orders": []})
    transactions.turn()
    assert transactions.markers.writes == []
    assert transactions.state() is STATE.COMPLETE_COMMIT
    assert transactions.commit(producer) is ErrorCode.NONE


def test_a_higher_producer_epoch_that_was_never_given_holds_no_transaction_up(
    transactions: TransactionsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may write to a partition can make one known there; Kafka leaves the id busy."""
    producer = prepared(transactions, {"orders": [0, 1]})
    with caplog.at_level(logging.ERROR):
        transactions.markers.write_all(ErrorCode.INVALID_PRODUCER_EPOCH, count=1)
        transactions.wait(FENCED_ALARM_MS / 1000 + 1)
        assert "completed without some markers" in caplog.text
        assert transactions.state() is STATE.PREPARE_COMMIT  # the other marker is on its way
        transactions.markers.write_all()
        transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT
    assert transactions.begin(producer=producer) == (producer[0], producer[1] + 1)


def test_a_partition_that_refuses_its_marker_late_is_not_waited_for_either(
    transactions: TransactionsHarness,
) -> None:
    prepared(transactions, {"orders": [0, 1]})
    for _ in range(2):
        assert transactions.state() is STATE.PREPARE_COMMIT
        transactions.markers.write_all(ErrorCode.INVALID_PRODUCER_EPOCH, count=1)
        transactions.wait(FENCED_ALARM_MS / 1000 + 1)
    assert transactions.state() is STATE.COMPLETE_COMMIT
    assert transactions.states().count("CompleteCommit") == 1


def test_refused_by_somebody_newer_it_is_left_to_them(
    transactions: TransactionsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """T3.4: whoever took over completes it; without a resignation somebody must look."""
    producer = prepared(transactions, {"orders": [0, 1]})
    with caplog.at_level(logging.ERROR):
        transactions.markers.write_all(ErrorCode.TRANSACTION_COORDINATOR_FENCED, count=1)
        transactions.markers.write_all()
        transactions.wait(FENCED_ALARM_MS / 1000 - 1)
        assert caplog.text == ""
        transactions.wait(2.0)
    assert caplog.text.count("cannot complete a transaction") == 1
    assert transactions.state() is STATE.PREPARE_COMMIT
    assert transactions.commit(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(transactions.markers.writes) == 1


def test_there_is_no_alarm_where_the_term_ended(
    transactions: TransactionsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    prepared(transactions, {"orders": [0]})
    transactions.markers.write_all(FENCED[0])
    transactions.resign(T, 1)
    with caplog.at_level(logging.ERROR):
        transactions.wait(60.0)
    assert caplog.text == ""


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE])
def test_a_code_that_no_table_has_is_tried_again(
    transactions: TransactionsHarness, code: ErrorCode
) -> None:
    """T8.5: nothing holds up a transaction for ever."""
    prepared(transactions, {"orders": [0, 1]})
    for _ in range(5):
        transactions.markers.write_all(code)
        transactions.wait(2.0)
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT


def test_markers_have_the_epochs_that_were_decided_however_often_they_are_sent(
    transactions: TransactionsHarness,
) -> None:
    """T8.24: no epoch is bumped for a marker."""
    prepared(transactions, {"orders": [0]})
    transactions.reload()
    transactions.reload(2)
    writes = transactions.markers.writes
    assert [(one.producer_epoch, one.coordinator_epoch) for one in writes] == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]


def test_the_answer_of_a_marker_may_come_while_another_request_is_served(
    transactions: TransactionsHarness,
) -> None:
    """T8.14: nothing waits inside of a completion."""
    producer = prepared(transactions, {"orders": [0]})
    prepared(transactions, {"orders": [1]}, "u")
    first, second = transactions.markers.writes
    transactions.loop.call_soon(first.on_written, ("orders", 0), ErrorCode.NONE)
    transactions.loop.call_soon(second.on_written, ("orders", 1), ErrorCode.NONE)
    assert transactions.commit(producer) in (
        ErrorCode.NONE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
    transactions.turn()
    assert {transactions.state("t"), transactions.state("u")} == {STATE.COMPLETE_COMMIT}


# -- CompleteX -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_RECORD,
    ],
    ids=lambda code: code.name,
)
def test_a_completion_that_cannot_be_appended_is_tried_until_it_is(
    transactions: TransactionsHarness, failure: ErrorCode
) -> None:
    """T3.3: only CompleteX stays pending; no marker is written again."""
    producer = prepared(transactions, {"orders": [0]})
    transactions.log.append_fails_with = failure
    transactions.markers.write_all()
    transactions.wait(30.0)
    assert transactions.transaction().pending is STATE.COMPLETE_COMMIT
    assert transactions.commit(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.log.append_fails_with = None
    transactions.wait(2.0)
    assert transactions.commit(producer) is ErrorCode.NONE
    assert len(transactions.markers.writes) == 1
    assert transactions.states().count("CompleteCommit") == 1


def test_a_completion_stops_with_its_term(transactions: TransactionsHarness) -> None:
    prepared(transactions, {"orders": [0]})
    transactions.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    transactions.markers.write_all()
    transactions.turn()
    transactions.resign(T, 1)
    transactions.log.append_fails_with = None
    transactions.wait(60.0)
    assert transactions.states()[-1] == "PrepareCommit"


# -- terms ---------------------------------------------------------------------------------------


def test_answers_to_markers_of_a_former_term_do_not_touch_the_present_one(
    transactions: TransactionsHarness,
) -> None:
    """T8.4 (KAFKA-16352): completions go by identity."""
    prepared(transactions, {"orders": [0, 1]})
    [former] = transactions.markers.writes
    transactions.reload()
    assert not former.is_current()
    former.on_written(("orders", 0), ErrorCode.NONE)
    former.on_written(("orders", 1), ErrorCode.NONE)
    transactions.turn()
    assert transactions.state() is STATE.PREPARE_COMMIT
    present = transactions.markers.writes[-1]
    assert set(present.partitions) == {("orders", 0), ("orders", 1)}
    for partition in present.partitions:
        present.on_written(partition, ErrorCode.NONE)
    transactions.turn()
    assert transactions.states().count("CompleteCommit") == 1


def test_queued_markers_are_dropped_at_resignation_and_before_a_load(
    transactions: TransactionsHarness,
) -> None:
    prepared(transactions, {"orders": [0]})
    transactions.markers.dropped.clear()
    transactions.resign(T, 1)
    assert transactions.markers.dropped == [T]
    assert transactions.markers.waiting == []
    transactions.elect(T, 2)
    assert transactions.markers.dropped == [T, T]


def test_a_resignation_without_an_epoch_always_counts(transactions: TransactionsHarness) -> None:
    """KAFKA-9235: the replica was deleted."""
    prepared(transactions, {"orders": [0]})
    [write] = transactions.markers.writes
    transactions.coordinator.on_resigned(T, None)
    assert not write.is_current()
    assert transactions.commit((1001, 0)) is ErrorCode.NOT_COORDINATOR


def test_a_leader_that_stays_sends_the_missing_markers_under_its_new_epoch(
    transactions: TransactionsHarness,
) -> None:
    """T8.6 (KAFKA-15468), and whoever led in between may have had the old epoch refused."""
    prepared(transactions, {"orders": [0, 1, 2]})
    transactions.markers.write_all(count=1)
    transactions.markers.write_all(FENCED[0], count=1)
    transactions.elect(T, 3)
    former, present = transactions.markers.writes
    assert not former.is_current()
    assert (present.coordinator_epoch, list(present.partitions)) == (
        3,
        [("orders", 1), ("orders", 2)],
    )
    former.on_written(("orders", 1), ErrorCode.NONE)
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT


def test_a_leader_that_stays_serves_on_and_appends_under_its_new_epoch(
    transactions: TransactionsHarness,
) -> None:
    """T8.6."""
    producer = transactions.begin()
    transactions.add(producer)
    transactions.elect(T, 3)
    assert transactions.commit(producer) is ErrorCode.NONE
    transactions.turn()
    assert transactions.state() is STATE.COMPLETE_COMMIT
    assert transactions.markers.writes[-1].coordinator_epoch == 3


def test_an_append_that_is_committed_after_its_term_is_not_applied(
    transactions: TransactionsHarness,
) -> None:
    """The next term reads it; the client is told to look for it."""
    producer = reach(transactions, STATE.ONGOING)
    transactions.log.is_replicated = False
    asked = transactions.end(producer)
    former = transactions.transaction()
    transactions.coordinator.on_resigned(T, 1)
    transactions.log.replicate(T)
    transactions.turn()
    assert asked.code is ErrorCode.NOT_COORDINATOR
    assert (former.state, former.pending) == (STATE.ONGOING, None)
    assert transactions.markers.writes == []


def test_nothing_of_an_old_term_reaches_the_log(transactions: TransactionsHarness) -> None:
    producer = reach(transactions, STATE.ONGOING)
    before = transactions.states()
    request = transactions.hand_in_end(producer)
    transactions.resign(T, 1)
    transactions.elect(T, 2)
    transactions.turn()
    assert request.code is ErrorCode.NOT_COORDINATOR
    assert transactions.states() == before
    assert transactions.commit(producer) is ErrorCode.NONE
