"""InitProducerId: checks T2.3, T2.4, T2.5, T2.9, and the traps T8.2, T8.16 and T8.20.

Source: docs/spec/transactions.md §2.4; what a real Kafka 3.9.1 answered
(tests/golden/txn-data.json).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)

REFUSED = (-1, -1)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [(5, -1), (-1, 5)])
@pytest.mark.parametrize("name", ["t", None, ""])
def test_a_producer_id_without_an_epoch_or_the_reverse_is_refused_first(
    transactions: TransactionsHarness, producer: tuple[int, int], name: str | None
) -> None:
    found = identity(transactions.init(name, producer=producer, timeout_ms=0))
    assert found == (ErrorCode.INVALID_REQUEST, *REFUSED)


def test_without_an_id_a_fresh_producer_id_is_given_whatever_was_named(
    transactions: TransactionsHarness,
) -> None:
    assert identity(transactions.init(None, producer=(7, 3))) == (ErrorCode.NONE, 1001, 0)
    assert identity(transactions.init(None)) == (ErrorCode.NONE, 1002, 0)


def test_without_an_id_no_coordinator_is_needed(transactions: TransactionsHarness) -> None:
    transactions.coordinator.topic_lost()
    assert identity(transactions.init(None))[0] is ErrorCode.NONE


def test_an_empty_id_is_refused(transactions: TransactionsHarness) -> None:
    assert identity(transactions.init("")) == (ErrorCode.INVALID_REQUEST, *REFUSED)


@pytest.mark.parametrize(("timeout_ms", "is_taken"), [(0, False), (-1, False), (1, True)])
def test_a_timeout_is_positive(
    transactions: TransactionsHarness, timeout_ms: int, is_taken: bool
) -> None:
    code = identity(transactions.init(timeout_ms=timeout_ms))[0]
    assert code is (ErrorCode.NONE if is_taken else ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def test_a_timeout_has_an_upper_bound(
    make_transactions: Callable[..., TransactionsHarness],
) -> None:
    harness = make_transactions(timeout_max_ms=5000)
    assert identity(harness.init(timeout_ms=5001)) == (
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        *REFUSED,
    )
    assert identity(harness.init(timeout_ms=5000))[0] is ErrorCode.NONE


def test_no_id_is_made_where_its_partition_is_not_led(transactions: TransactionsHarness) -> None:
    transactions.resign(partition_of("t"), 1)
    assert identity(transactions.init()) == (ErrorCode.NOT_COORDINATOR, *REFUSED)


# -- what is given -------------------------------------------------------------------------------


def test_a_new_id_gets_a_fresh_producer_id_at_epoch_0(transactions: TransactionsHarness) -> None:
    assert transactions.begin(timeout_ms=4321) == (1001, 0)
    [logged] = transactions.logged()
    assert logged == transactions.metadata()
    assert (logged.state, logged.timeout_ms) == (TransactionState.EMPTY, 4321)
    assert (logged.partitions, logged.started_ms) == ((), -1)


def test_another_producer_of_the_id_gets_the_next_epoch_and_its_timeout_counts(
    transactions: TransactionsHarness,
) -> None:
    transactions.begin()
    assert transactions.begin(timeout_ms=2000) == (1001, 1)
    assert transactions.metadata().timeout_ms == 2000


def test_a_producer_that_names_its_epoch_gets_the_next_and_so_does_its_retry(
    transactions: TransactionsHarness,
) -> None:
    """T2.3: X = E, X = L, another, as a real 3.9.1 answered."""
    producer = transactions.begin()
    assert transactions.begin(producer=producer) == (1001, 1)
    assert transactions.begin(producer=producer) == (1001, 1)
    assert len(transactions.records()) == 3  # written again
    assert transactions.begin(producer=(1001, 1)) == (1001, 2)
    fenced = identity(transactions.init(producer=producer))
    assert fenced == (ErrorCode.PRODUCER_FENCED, *REFUSED)
    other = identity(transactions.init(producer=(999, 2)))
    assert other == (ErrorCode.PRODUCER_FENCED, *REFUSED)


def test_a_retry_across_a_takeover_is_fenced(transactions: TransactionsHarness) -> None:
    """The last epoch is not in the log."""
    producer = transactions.begin()
    transactions.begin(producer=producer)
    transactions.reload()
    assert identity(transactions.init(producer=producer))[0] is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_a_fenced_producer_is_told_so_by_version(
    transactions: TransactionsHarness, version: int, code: ErrorCode
) -> None:
    """T2.4 for InitProducerId."""
    transactions.begin()
    assert identity(transactions.init(producer=(999, 0), version=version))[0] is code


def exhaust(transactions: TransactionsHarness, epoch: int) -> None:
    """Let the id have been given every epoch up to this one."""
    transactions.begin()
    transaction = transactions.transaction()
    known = transaction.metadata
    transaction.metadata = type(known)(
        producer_id=known.producer_id,
        producer_epoch=epoch,
        timeout_ms=known.timeout_ms,
        state=known.state,
        updated_ms=known.updated_ms,
    )


@pytest.mark.parametrize("epoch", [32766, 32767])
@pytest.mark.parametrize("names_epoch", [True, False])
def test_exhausted_epochs_lead_to_a_fresh_producer_id(
    transactions: TransactionsHarness, epoch: int, names_epoch: bool
) -> None:
    """T2.3."""
    exhaust(transactions, epoch)
    producer = (1001, epoch) if names_epoch else (-1, -1)
    assert transactions.begin(producer=producer) == (1002, 0)
    if names_epoch:
        assert transactions.begin(producer=producer) == (1002, 0)  # the answer had been lost


def test_32766_is_given_and_32767_is_not(transactions: TransactionsHarness) -> None:
    exhaust(transactions, 32765)
    assert transactions.begin(producer=(1001, 32765)) == (1001, 32766)
    assert transactions.begin(producer=(1001, 32765)) == (1001, 32766)  # a retry
    assert transactions.begin(producer=(1001, 32766)) == (1002, 0)


def test_a_producer_whose_id_expired_begins_anew(transactions: TransactionsHarness) -> None:
    """T2.9, T8.20."""
    assert transactions.begin(producer=(77, 9)) == (1001, 0)


# -- producer ids that are not at hand -----------------------------------------------------------


def test_no_producer_id_at_hand_is_an_answer_and_leaves_no_id(
    transactions: TransactionsHarness,
) -> None:
    transactions.producer_ids.is_away = True
    asked = transactions.init()
    assert not asked.is_answered
    transactions.producer_ids.decide(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert identity(asked) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *REFUSED)
    assert transactions.coordinator.registry.find("t") is None


def test_two_producers_that_wait_for_an_id_at_once_get_epochs_of_one_producer_id(
    transactions: TransactionsHarness,
) -> None:
    transactions.producer_ids.is_away = True
    asked = [transactions.init(), transactions.init()]
    transactions.producer_ids.decide()
    transactions.turn()
    assert identity(asked[0]) == (ErrorCode.NONE, 1001, 0)
    assert identity(asked[1])[0] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_partition_that_is_lost_while_an_id_waits_is_not_written_to(
    transactions: TransactionsHarness,
) -> None:
    transactions.producer_ids.is_away = True
    asked = transactions.init()
    transactions.resign(partition_of("t"), 1)
    transactions.producer_ids.decide()
    transactions.turn()
    assert identity(asked)[0] is ErrorCode.NOT_COORDINATOR
    assert transactions.records() == []


# -- fencing -------------------------------------------------------------------------------------


def test_a_second_producer_aborts_the_open_transaction_of_the_first(
    transactions: TransactionsHarness,
) -> None:
    """T2.5, T8.2: 51, then epoch + 2; the marker has epoch + 1, and the first one is fenced."""
    first = transactions.begin()
    transactions.add(first)
    asked = transactions.init()
    assert identity(asked) == (ErrorCode.CONCURRENT_TRANSACTIONS, *REFUSED)
    transactions.turn()
    assert transactions.markers.written == [(("orders", 0), 1001, 1, False)]
    assert transactions.begin() == (1001, 2)
    assert transactions.commit(first) is ErrorCode.PRODUCER_FENCED
    assert transactions.states() == [
        "Empty",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
        "Empty",
    ]


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_producer_that_was_replaced_does_not_abort_the_transaction_of_its_successor(
    transactions: TransactionsHarness, epoch: int
) -> None:
    """Kafka 3.9 looks at the producer id alone before it aborts, and at the epoch afterwards."""
    transactions.begin()
    present = transactions.begin(producer=(1001, 0))
    assert present == (1001, 1)
    transactions.add(present)
    assert identity(transactions.init(producer=(1001, epoch))) == (
        ErrorCode.PRODUCER_FENCED,
        *REFUSED,
    )
    assert transactions.states()[-1] == "Ongoing"
    assert transactions.commit(present) is ErrorCode.NONE


def test_a_producer_that_names_itself_has_its_open_transaction_aborted(
    transactions: TransactionsHarness,
) -> None:
    present = transactions.begin()
    transactions.add(present)
    asked = transactions.init(producer=present)
    assert identity(asked) == (ErrorCode.CONCURRENT_TRANSACTIONS, *REFUSED)
    transactions.turn()
    assert transactions.states()[-1] == "CompleteAbort"


def test_fencing_producers_succeeds_once_the_markers_are_written(
    transactions: TransactionsHarness,
) -> None:
    """T8.16: 51 is not the end."""
    transactions.add(transactions.begin())
    transactions.markers.is_prompt = False
    told = [identity(transactions.init())[0] for _ in range(3)]
    assert told == [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    transactions.markers.write_all()
    transactions.turn()
    assert transactions.begin() == (1001, 2)
    assert transactions.states().count("PrepareAbort") == 1


def test_a_fence_is_answered_when_its_abort_is_committed(
    transactions: TransactionsHarness,
) -> None:
    first = transactions.begin()
    transactions.add(first)
    transactions.log.is_replicated = False
    asked = transactions.init()
    assert not asked.is_answered
    # Requests under the old epoch are busy meanwhile, not fenced: the abort may still fail.
    assert transactions.commit(first) is ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.log.replicate(partition_of("t"))
    assert identity(asked)[0] is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_fence_that_cannot_be_appended_changes_nothing(
    transactions: TransactionsHarness, failure: ErrorCode, told: ErrorCode
) -> None:
    """KAFKA-9666: the epoch stays what it is, however often that fails."""
    first = transactions.begin()
    transactions.add(first)
    transactions.log.append_fails_with = failure
    for _ in range(3):
        assert identity(transactions.init())[0] is told
    transactions.log.append_fails_with = None
    assert transactions.metadata().producer_epoch == 0
    assert transactions.commit(first) is ErrorCode.NONE
    transactions.turn()
    assert transactions.markers.written == [(("orders", 0), 1001, 0, True)]


def test_a_fence_at_the_last_epoch_that_is_given_takes_the_one_after_it(
    transactions: TransactionsHarness,
) -> None:
    exhaust(transactions, 32766)
    assert set(codes(transactions.add((1001, 32766))).values()) == {ErrorCode.NONE}
    assert identity(transactions.init())[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.turn()
    assert transactions.markers.written == [(("orders", 0), 1001, 32767, False)]
    assert transactions.begin() == (1002, 0)


def test_the_timeout_of_a_fence_is_not_that_of_the_aborted_transaction(
    transactions: TransactionsHarness,
) -> None:
    transactions.add(transactions.begin(timeout_ms=7000))
    transactions.init(timeout_ms=9000)
    transactions.turn()
    assert transactions.metadata().timeout_ms == 7000
    transactions.begin(timeout_ms=9000)
    assert transactions.metadata().timeout_ms == 9000
