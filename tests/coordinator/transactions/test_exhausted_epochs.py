"""The last epochs of a producer id, as a coordinator finds them in its log: check T2.3.

Source: docs/spec/transactions.md §2.4. 32766 is the last epoch that a producer is given; 32767 is
kept for a fence. What follows is a producer id of its own, with epochs from 0.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.transactions.transaction import Metadata
from barnabas.coordinator.transactions.transaction_record import key_of, value_of
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)

STATE = TransactionState
T = partition_of("t")
PID = 77
FRESH = 1001
"""The first producer id that the harness gives."""
LAST, FENCE = 32766, 32767
FENCED = ErrorCode.PRODUCER_FENCED
Inherit = Callable[..., TransactionsHarness]


@pytest.fixture
def inherit(make_transactions: Callable[..., TransactionsHarness]) -> Inherit:
    """A coordinator whose log says this of the id."""

    def make(state: TransactionState, epoch: int, timeout_ms: int = 60_000) -> TransactionsHarness:
        node = make_transactions(is_elected=False)
        metadata = Metadata(
            producer_id=PID,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            state=state,
            partitions=() if state is STATE.EMPTY else (("orders", 0),),
            updated_ms=node.now_ms(),
            started_ms=node.now_ms(),
        )
        hosted = node.log.partition(T)
        hosted.append(build_batch([(key_of("t"), value_of(metadata))], timestamp_ms=1))
        hosted.high_watermark = hosted.end
        node.elect(T, 1)
        node.turn()
        return node

    return make


@pytest.mark.parametrize("epoch", [LAST, FENCE])
@pytest.mark.parametrize("names_itself", [True, False])
def test_a_producer_begins_under_another_producer_id(
    inherit: Inherit, epoch: int, names_itself: bool
) -> None:
    node = inherit(STATE.EMPTY, epoch)
    asked = node.init(producer=(PID, epoch) if names_itself else (-1, -1))
    assert identity(asked) == (ErrorCode.NONE, FRESH, 0)
    assert set(codes(node.add((FRESH, 0))).values()) == {ErrorCode.NONE}
    assert node.commit((FRESH, 0)) is ErrorCode.NONE
    node.reload(2)
    assert node.begin() == (FRESH, 1)


def test_the_former_producer_is_told_that_the_id_is_anothers(inherit: Inherit) -> None:
    node = inherit(STATE.EMPTY, LAST)
    node.begin()
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert node.commit((PID, LAST)) is mapping
    assert set(codes(node.add((PID, LAST))).values()) == {mapping}
    assert set(codes(node.verify((PID, LAST), {"orders": [0]})).values()) == {mapping}
    assert identity(node.init(producer=(PID, LAST)))[0] is FENCED


def test_a_lost_answer_is_given_again_but_not_across_a_takeover(inherit: Inherit) -> None:
    node = inherit(STATE.EMPTY, LAST)
    for _ in range(2):
        assert identity(node.init(producer=(PID, LAST))) == (ErrorCode.NONE, FRESH, 0)
    node.reload(2)
    assert identity(node.init(producer=(PID, LAST)))[0] is FENCED


def test_an_open_transaction_at_the_last_epoch_times_out_under_the_one_behind(
    inherit: Inherit,
) -> None:
    """T3.8; the marker fences the old producer in the partition, too."""
    node = inherit(STATE.ONGOING, LAST, timeout_ms=5000)
    node.wait(6)
    assert node.markers.written == [(("orders", 0), PID, FENCE, False)]
    assert node.state() is STATE.COMPLETE_ABORT
    assert node.commit((PID, LAST)) is FENCED
    assert identity(node.init(producer=(PID, LAST)))[0] is FENCED
    assert node.begin() == (FRESH, 0)


def test_a_second_producer_fences_one_at_the_last_epoch(inherit: Inherit) -> None:
    node = inherit(STATE.ONGOING, LAST)
    assert identity(node.init())[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    node.turn()
    assert node.markers.written == [(("orders", 0), PID, FENCE, False)]
    assert identity(node.init()) == (ErrorCode.NONE, FRESH, 0)


@pytest.mark.parametrize(
    ("state", "is_commit"), [(STATE.PREPARE_COMMIT, True), (STATE.PREPARE_ABORT, False)]
)
@pytest.mark.parametrize("epoch", [LAST, FENCE])
def test_a_decided_end_is_completed_under_the_epoch_that_it_was_decided_under(
    inherit: Inherit, state: TransactionState, is_commit: bool, epoch: int
) -> None:
    node = inherit(state, epoch)
    assert node.markers.written == [(("orders", 0), PID, epoch, is_commit)]
    assert node.begin() == (FRESH, 0)


def test_what_was_opened_under_the_epoch_of_fences_can_still_be_aborted(inherit: Inherit) -> None:
    """Nobody is given that epoch; there is none behind it, so the abort keeps it."""
    node = inherit(STATE.COMPLETE_ABORT, FENCE)
    assert set(codes(node.add((PID, FENCE))).values()) == {ErrorCode.NONE}
    assert identity(node.init())[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    node.turn()
    assert node.markers.written == [(("orders", 0), PID, FENCE, False)]
    assert node.state() is STATE.COMPLETE_ABORT
    assert node.begin() == (FRESH, 0)


def test_no_producer_id_at_hand_leaves_the_exhausted_one_as_it_is(inherit: Inherit) -> None:
    node = inherit(STATE.EMPTY, LAST)
    node.producer_ids.is_away = True
    asked = node.init()
    node.producer_ids.decide(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    node.turn()
    assert identity(asked)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.metadata().producer_epoch == LAST
    assert set(codes(node.add((PID, LAST))).values()) == {ErrorCode.NONE}
    assert node.commit((PID, LAST)) is ErrorCode.NONE
