"""Elections and loads: checks T3.1, T3.2 and T1.5, traps T8.6 and T8.21.

Source: docs/spec/transactions.md §3.2, §3.3 and §10.2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from barnabas.coordinator.cooperative import ITEMS_PER_TURN
from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.coordinator.transactions.transaction import Metadata
from barnabas.coordinator.transactions.transaction_record import key_of, value_of
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.transactions.test_end_txn import reach
from tests.coordinator.transactions.transactions_harness import (
    PARTITIONS,
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)

STATE = TransactionState
T = partition_of("t")
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# -- what the next coordinator does --------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_decided_end_is_completed_by_the_next_coordinator(
    transactions: TransactionsHarness, is_commit: bool, written: int
) -> None:
    """T3.1, T8.21: a crash after each marker; all partitions get theirs, under the new epoch."""
    producer = transactions.begin()
    transactions.add(producer, {"orders": [0, 1], "clicks": [2]})
    transactions.markers.is_prompt = False
    transactions.end(producer, is_commit=is_commit)
    transactions.markers.write_all(count=written)
    transactions.turn()
    transactions.reload(leader_epoch=5)
    present = transactions.markers.writes[-1]
    assert present.coordinator_epoch == 5
    assert set(present.partitions) == {("orders", 0), ("orders", 1), ("clicks", 2)}
    transactions.markers.write_all()
    transactions.turn()
    assert {one[3] for one in transactions.markers.written} == {is_commit}
    assert transactions.end(producer, is_commit=is_commit).code is ErrorCode.NONE


def test_a_crash_between_markers_and_completion_writes_the_markers_again(
    transactions: TransactionsHarness,
) -> None:
    """T8.21: each crash point; a second marker changes nothing."""
    producer = reach(transactions, STATE.PREPARE_COMMIT)
    transactions.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    transactions.markers.write_all()
    transactions.turn()
    transactions.log.append_fails_with = None
    transactions.markers.is_prompt = True
    transactions.reload()
    assert transactions.commit(producer) is ErrorCode.NONE
    assert transactions.markers.written == [(("orders", 0), 1001, 0, True)] * 2
    assert transactions.states().count("CompleteCommit") == 1


def test_no_marker_leaves_while_its_decision_is_above_the_high_watermark(
    transactions: TransactionsHarness,
) -> None:
    """T3.2: the record may be lost by a second failover, and the transaction aborted then."""
    producer = reach(transactions, STATE.ONGOING)
    transactions.log.is_replicated = False
    asked = transactions.end(producer)
    transactions.reload()
    assert asked.code is ErrorCode.NOT_COORDINATOR
    transactions.wait(5.0)
    assert transactions.markers.writes == []
    assert transactions.commit_waits(producer) is LOADING
    # The second failover: nobody else has the record.
    transactions.resign(T, 2)
    transactions.log.partition(T).truncate(2)
    transactions.log.is_replicated = True
    transactions.elect(T, 3)
    transactions.turn()
    assert transactions.state() is STATE.ONGOING
    assert transactions.markers.writes == []
    assert transactions.abort(producer) is ErrorCode.NONE
    transactions.turn()
    assert [one[3] for one in transactions.markers.written] == [False]


def test_its_markers_leave_when_the_high_watermark_reached_it(
    transactions: TransactionsHarness,
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.log.is_replicated = False
    transactions.end(producer)
    transactions.reload()
    assert transactions.markers.writes == []
    transactions.log.is_replicated = True
    transactions.log.replicate(T)
    transactions.turn()
    assert [one[3] for one in transactions.markers.written] == [True]
    assert transactions.commit(producer) is ErrorCode.NONE


@pytest.mark.parametrize("state", [STATE.EMPTY, STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT])
def test_an_id_without_a_transaction_goes_on_where_it_was(
    transactions: TransactionsHarness, state: TransactionState
) -> None:
    reach(transactions, state)
    before = transactions.metadata()
    transactions.reload()
    assert transactions.metadata() == before
    assert transactions.transaction().pending is None
    assert transactions.begin() == (1001, 1)


def test_an_open_transaction_waits_for_its_producer(transactions: TransactionsHarness) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.reload()
    assert set(codes(transactions.verify(producer, {"orders": [0]})).values()) == {ErrorCode.NONE}
    assert set(codes(transactions.add(producer, {"orders": [1]})).values()) == {ErrorCode.NONE}
    assert transactions.commit(producer) is ErrorCode.NONE


def test_what_was_pending_is_not_pending_in_the_next_term(
    transactions: TransactionsHarness,
) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.log.is_replicated = False
    asked = transactions.add(producer, {"orders": [1]})
    transactions.log.is_replicated = True
    transactions.reload()
    assert set(codes(asked).values()) == {ErrorCode.NOT_COORDINATOR}
    transactions.log.replicate(T)
    transactions.turn()
    assert transactions.metadata().partitions == (("orders", 0), ("orders", 1))
    assert transactions.commit(producer) is ErrorCode.NONE


# -- very many of them -----------------------------------------------------------------------------


MANY = 10 * ITEMS_PER_TURN + 1


def inherit(
    transactions: TransactionsHarness,
    state: TransactionState,
    *,
    partitions: int = 1,
    count: int = MANY,
) -> list[str]:
    """Ids of one partition of the log that another node left in a state; not elected yet."""
    names = [name for name in (f"id-{i}" for i in range(4 * count)) if partition_of(name) == T]
    hosted = transactions.log.partition(T)
    for number, name in enumerate(names[:count]):
        metadata = Metadata(
            producer_id=number,
            producer_epoch=3,
            timeout_ms=60_000,
            state=state,
            partitions=tuple(("orders", index) for index in range(partitions)),
            updated_ms=transactions.now_ms(),
            started_ms=transactions.now_ms(),
        )
        hosted.append(build_batch([(key_of(name), value_of(metadata))], timestamp_ms=1))
    hosted.high_watermark = hosted.end
    return names[:count]


def turns_until_all_are_sent(transactions: TransactionsHarness, count: int) -> list[int]:
    """How many of so many inherited transactions have begun to complete, turn by turn."""
    transactions.markers.is_prompt = False
    transactions.elect(T, 5)
    seen: list[int] = [0]

    def are_all_sent() -> bool:
        seen.append(len(transactions.markers.writes))
        return seen[-1] == count

    run_until(transactions, are_all_sent)
    return [later - earlier for earlier, later in pairwise(seen) if later > earlier]


def run_until(transactions: TransactionsHarness, is_reached: Callable[[], bool]) -> None:
    """Run the loop, and ask once in each of its turns."""

    async def watch() -> None:
        for _ in range(1000):
            if is_reached():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never is")

    transactions.loop.run_until_complete(watch())


@pytest.mark.parametrize(
    ("partitions", "most"), [(1, ITEMS_PER_TURN), (8, ITEMS_PER_TURN // 2), (5000, 1)]
)
def test_very_many_decided_ends_are_completed_over_many_turns(
    make_transactions: Callable[..., TransactionsHarness], partitions: int, most: int
) -> None:
    """One partition of the log must not hold up whatever else the node does."""
    transactions = make_transactions(is_elected=False)
    count = MANY if most > 1 else 5
    names = inherit(transactions, STATE.PREPARE_COMMIT, partitions=partitions, count=count)
    begun = turns_until_all_are_sent(transactions, count)
    assert max(begun) <= most
    assert len(begun) >= count // most
    transactions.markers.write_all()
    transactions.turn(100)
    assert {transactions.state(name) for name in names} == {STATE.COMPLETE_COMMIT}
    assert not transactions.coordinator.registry.term_of(names[0]).unfinished


def test_an_id_whose_turn_has_not_come_answers_by_its_state(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    transactions = make_transactions(is_elected=False)
    names = inherit(transactions, STATE.PREPARE_COMMIT)
    last, producer = names[0], (0, 3)
    transactions.markers.is_prompt = False
    transactions.elect(T, 5)
    asked = transactions.hand_in_end(producer, name=last)  # waits for the load
    run_until(transactions, lambda: asked.is_answered)
    assert transactions.transaction(last).completion is None
    assert len(transactions.markers.writes) < MANY
    assert asked.code is ErrorCode.CONCURRENT_TRANSACTIONS
    told = {
        transactions.hand_in_end(producer, name=last).code,
        identity(transactions.hand_in_init(last))[0],
        *codes(transactions.hand_in_add(producer, {"orders": [1]}, name=last)).values(),
        *codes(transactions.hand_in_verify(producer, {"orders": [0]}, last)).values(),
    }
    assert told == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert transactions.transaction(last).completion is None
    transactions.turn(100)
    assert len(transactions.markers.writes) == MANY
    transactions.markers.write_all()
    transactions.turn(100)
    assert transactions.commit(producer, name=last) is ErrorCode.NONE


def test_open_transactions_whose_turn_has_not_come_are_ended_by_their_clients_or_time_out(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    transactions = make_transactions(is_elected=False)
    names = inherit(transactions, STATE.ONGOING)
    left, grown, ended = names[:3]  # the fold gives the first ones last
    transactions.elect(T, 5)
    asked = [
        transactions.hand_in_end((2, 3), name=ended),
        transactions.hand_in_add((1, 3), {"orders": [1]}, name=grown),
    ]
    run_until(transactions, lambda: asked[-1].is_answered)
    assert transactions.transaction(left).deadline is None
    assert asked[0].code is ErrorCode.NONE
    assert set(codes(asked[1]).values()) == {ErrorCode.NONE}
    transactions.turn(100)
    assert transactions.state(ended) is STATE.COMPLETE_COMMIT
    assert transactions.metadata(grown).partitions == (("orders", 0), ("orders", 1))
    transactions.wait(61)
    transactions.turn(100)
    assert {transactions.state(name) for name in names} == {
        STATE.COMPLETE_COMMIT,
        STATE.COMPLETE_ABORT,
    }
    assert sum(transactions.state(name) is STATE.COMPLETE_COMMIT for name in names) == 1


def test_a_term_that_ends_before_all_were_gone_on_with_leaves_nothing_behind(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    transactions = make_transactions(is_elected=False)
    inherit(transactions, STATE.PREPARE_COMMIT)
    transactions.markers.is_prompt = False
    transactions.elect(T, 5)
    run_until(transactions, lambda: bool(transactions.markers.writes))
    begun = len(transactions.markers.writes)
    assert begun < MANY
    transactions.resign(T, 6)
    transactions.turn(100)
    assert len(transactions.markers.writes) == begun
    assert not any(write.is_current() for write in transactions.markers.writes)
    transactions.elect(T, 7)
    transactions.turn(100)
    again = transactions.markers.writes[begun:]
    assert (len(again), {write.coordinator_epoch for write in again}) == (MANY, {7})


def test_a_higher_epoch_sends_very_many_ends_again_over_many_turns(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    """T8.6; those whose turn has not come when the next epoch comes are sent under that alone."""
    transactions = make_transactions(is_elected=False)
    inherit(transactions, STATE.PREPARE_COMMIT)
    turns_until_all_are_sent(transactions, MANY)
    transactions.elect(T, 6)
    sent = len(transactions.markers.writes)
    assert MANY < sent < 2 * MANY
    transactions.elect(T, 7)
    transactions.turn(100)
    epochs = [write.coordinator_epoch for write in transactions.markers.writes[sent:]]
    assert epochs.count(7) == MANY
    assert set(epochs) == {7}
    assert sum(write.is_current() for write in transactions.markers.writes) == MANY


def test_a_higher_epoch_before_all_were_gone_on_with_sends_every_end_once_under_it(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    """T8.6: the leader stays leader."""
    transactions = make_transactions(is_elected=False)
    inherit(transactions, STATE.PREPARE_COMMIT)
    transactions.markers.is_prompt = False
    transactions.elect(T, 5)
    run_until(transactions, lambda: bool(transactions.markers.writes))
    begun = len(transactions.markers.writes)
    assert begun < MANY
    transactions.elect(T, 6)
    transactions.turn(100)
    current = [write for write in transactions.markers.writes[begun:] if write.is_current()]
    assert (len(current), {write.coordinator_epoch for write in current}) == (MANY, {6})


# -- loads ---------------------------------------------------------------------------------------


def test_a_load_may_happen_again_without_a_difference(transactions: TransactionsHarness) -> None:
    """T8.6."""
    reach(transactions, STATE.ONGOING)
    transactions.begin("u")
    before = {name: transactions.metadata(name) for name in "tu"}
    for epoch in range(1, 4):
        transactions.reload(epoch)
        assert {name: transactions.metadata(name) for name in "tu"} == before


def test_an_election_while_it_loads_loads_again(transactions: TransactionsHarness) -> None:
    producer = reach(transactions, STATE.ONGOING)
    transactions.resign(T, 1)
    transactions.elect(T, 2)
    transactions.elect(T, 3)
    transactions.turn()
    assert transactions.commit(producer) is ErrorCode.NONE


def test_a_partition_that_cannot_be_read_is_not_served_in_part(
    transactions: TransactionsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """T1.5, and 16 instead of what was read before the error."""
    transactions.begin()
    transactions.log.partition(T).append(build_batch([(key_of("u"), b"\0\2later")], timestamp_ms=1))
    with caplog.at_level(logging.ERROR):
        transactions.reload()
    assert TRANSACTION_TOPIC in caplog.text
    assert "version 2" in caplog.text
    assert identity(transactions.init())[0] is ErrorCode.NOT_COORDINATOR
    assert transactions.describe("t")[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_load_that_failed_is_tried_again(transactions: TransactionsHarness) -> None:
    transactions.begin()
    transactions.log.read_fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    transactions.reload()
    assert identity(transactions.init())[0] is ErrorCode.NOT_COORDINATOR
    transactions.log.read_fails_with = None
    transactions.wait(1.0)
    assert transactions.begin() == (1001, 1)


def test_records_of_kinds_that_are_not_known_are_passed(
    transactions: TransactionsHarness,
) -> None:
    """KAFKA-9065: the load goes on by offsets, not by records."""
    reach(transactions, STATE.ONGOING)
    log = transactions.log.partition(T)
    log.append(build_batch([(b"\0\1new kind", b"x")], timestamp_ms=1))
    later = transactions.metadata().__class__(
        producer_id=5, producer_epoch=1, timeout_ms=9, state=STATE.EMPTY, updated_ms=1
    )
    log.append(build_batch([(key_of("u"), value_of(later))], timestamp_ms=1))
    log.high_watermark = log.end
    transactions.reload()
    assert transactions.state() is STATE.ONGOING
    assert partition_of("u") != T or transactions.metadata("u") == later


def test_a_follower_takes_over_what_it_folded(transactions: TransactionsHarness) -> None:
    """The warm standby: nothing is read at the takeover."""
    producer = reach(transactions, STATE.PREPARE_COMMIT)
    transactions.resign(T, 1)
    transactions.wait(1.0)
    reads = transactions.log.partition(T).reads
    transactions.markers.is_prompt = True
    transactions.elect(T, 2)
    transactions.turn()
    assert transactions.log.partition(T).reads == reads
    assert transactions.commit(producer) is ErrorCode.NONE


# -- ownership -----------------------------------------------------------------------------------


def test_before_it_is_started_there_is_no_coordinator(transactions: TransactionsHarness) -> None:
    transactions.coordinator.topic_lost()
    told = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert identity(transactions.init())[0] is told
    assert set(codes(transactions.add((1, 0))).values()) == {told}
    assert transactions.commit((1, 0)) is told
    assert transactions.describe("t")[0].error_code == told
    assert transactions.list().error_code == told


def test_a_topic_that_was_made_anew_begins_with_low_epochs_again(
    transactions: TransactionsHarness,
) -> None:
    transactions.reload(7)
    transactions.begin()
    transactions.coordinator.topic_lost()
    transactions.log.partitions.clear()
    transactions.coordinator.start(PARTITIONS)
    for index in range(PARTITIONS):
        transactions.elect(index, 0)
    transactions.turn()
    assert transactions.begin() == (1002, 0)


def test_outdated_elections_and_resignations_change_nothing(
    transactions: TransactionsHarness,
) -> None:
    transactions.reload(7)
    transactions.coordinator.on_resigned(T, 6)
    assert transactions.begin() == (1001, 0)
    transactions.resign(T, 8)
    transactions.coordinator.on_elected(T, 7)
    transactions.turn()
    assert identity(transactions.init())[0] is ErrorCode.NOT_COORDINATOR


def test_the_end_of_all_loads_is_told(transactions: TransactionsHarness) -> None:
    told: list[bool] = []
    transactions.coordinator.when_loaded = lambda: told.append(True)
    transactions.reload()
    assert told == [True]
