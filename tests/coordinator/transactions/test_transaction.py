"""What each transition of an id leads to: check T2.3, and the rules of the metadata.

Source: docs/spec/transactions.md §2.3 and §2.4.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.transactions.transaction import (
    EPOCH_MAX,
    Identity,
    Metadata,
    Transaction,
)
from barnabas.coordinator.transactions.transaction_registry import TransactionTerm
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode, Refused

PID, FRESH = 7, 8


def a_transaction(
    epoch: int = 3,
    *,
    last_epoch: int = -1,
    state: TransactionState = TransactionState.COMPLETE_COMMIT,
    partitions: tuple[tuple[str, int], ...] = (),
) -> Transaction:
    metadata = Metadata(
        producer_id=PID,
        producer_epoch=epoch,
        timeout_ms=1000,
        state=state,
        partitions=partitions,
        updated_ms=50,
        started_ms=40,
    )
    transaction = Transaction("t", metadata, TransactionTerm(0, 0))
    transaction.last_producer_id = PID
    transaction.last_epoch = last_epoch
    return transaction


# -- InitProducerId ------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [-1, 0, 5, 32765])
def test_without_an_expected_epoch_the_next_one_is_given(epoch: int) -> None:
    transaction = a_transaction(epoch, last_epoch=2)
    assert transaction.next_identity(-1, -1) == Identity(PID, epoch + 1, -1)


@pytest.mark.parametrize("epoch", [0, 5, 32765])
def test_the_expected_epoch_is_replaced_and_remembered(epoch: int) -> None:
    """X = E."""
    transaction = a_transaction(epoch)
    assert transaction.next_identity(epoch, -1) == Identity(PID, epoch + 1, epoch)


@pytest.mark.parametrize("expected", [0, 9, 32766])
def test_an_id_that_is_new_takes_whatever_epoch_is_expected(expected: int) -> None:
    """E = -1: the id had expired, and its producer goes on (T2.9, as far as it is pure)."""
    transaction = a_transaction(-1)
    assert transaction.knows_producer(999, expected)
    assert transaction.next_identity(expected, -1) == Identity(PID, 0, -1)


@pytest.mark.parametrize("epoch", [1, 5, 32765, 32766, 32767])
def test_a_retry_whose_answer_was_lost_gets_the_same_answer(epoch: int) -> None:
    """X = L; at 32766 and 32767 Kafka throws."""
    transaction = a_transaction(epoch, last_epoch=epoch - 1)
    assert transaction.next_identity(epoch - 1, -1) == Identity(PID, epoch, epoch - 1)


@pytest.mark.parametrize("epoch", [3, 32765, 32766, 32767])
@pytest.mark.parametrize("expected", [0, 1, 32000])
def test_any_other_expected_epoch_is_fenced(epoch: int, expected: int) -> None:
    transaction = a_transaction(epoch, last_epoch=2)
    with pytest.raises(Refused) as refusal:
        transaction.next_identity(expected, -1)
    assert refusal.value.code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_exhausted_epochs_begin_anew_under_another_producer_id(epoch: int) -> None:
    transaction = a_transaction(epoch)
    assert transaction.needs_producer_id(-1)
    assert transaction.next_identity(-1, FRESH) == Identity(FRESH, 0, -1)
    assert transaction.needs_producer_id(epoch)
    assert transaction.next_identity(epoch, FRESH) == Identity(FRESH, 0, epoch)


def test_at_32765_no_other_producer_id_is_needed() -> None:
    transaction = a_transaction(32765)
    assert not transaction.needs_producer_id(-1)
    assert not transaction.needs_producer_id(32765)


def test_a_retry_after_exhaustion_gets_the_new_producer_id_again() -> None:
    transaction = a_transaction(32766)
    identity = transaction.next_identity(32766, FRESH)
    transaction.begin(TransactionState.EMPTY)
    transaction.apply_identity(identity, transaction.initialised(identity, 1000, 60))
    assert transaction.metadata.producer_id == FRESH
    assert transaction.knows_producer(PID, 32766)
    assert not transaction.knows_producer(PID, 32765)
    assert transaction.next_identity(32766, -1) == Identity(FRESH, 0, 32766)


def test_only_its_own_producer_id_is_known() -> None:
    transaction = a_transaction(3)
    assert transaction.knows_producer(PID, 0)
    assert not transaction.knows_producer(PID + 1, 3)


def test_32767_is_never_given() -> None:
    for epoch in range(32760, 32768):
        for expected in (-1, epoch, epoch - 1):
            transaction = a_transaction(epoch, last_epoch=epoch - 1)
            identity = transaction.next_identity(expected, FRESH)
            is_retry = identity.producer_epoch == epoch
            assert identity.producer_epoch < EPOCH_MAX or is_retry


# -- metadata ------------------------------------------------------------------------------------


def test_init_producer_id_writes_an_empty_transaction() -> None:
    transaction = a_transaction(3, partitions=(("orders", 1),))
    assert transaction.initialised(Identity(PID, 4, 3), 500, 60) == Metadata(
        producer_id=PID,
        producer_epoch=4,
        timeout_ms=500,
        state=TransactionState.EMPTY,
        updated_ms=60,
        started_ms=-1,
    )


def test_the_first_partitions_begin_a_transaction() -> None:
    metadata = a_transaction(3).with_partitions([("orders", 1), ("orders", 1)], 60)
    assert metadata.state is TransactionState.ONGOING
    assert metadata.partitions == (("orders", 1),)
    assert (metadata.started_ms, metadata.updated_ms) == (60, 60)
    assert (metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms) == (PID, 3, 1000)


def test_further_partitions_keep_its_start() -> None:
    transaction = a_transaction(state=TransactionState.ONGOING, partitions=(("orders", 1),))
    metadata = transaction.with_partitions([("clicks", 0), ("orders", 1)], 60)
    assert metadata.partitions == (("orders", 1), ("clicks", 0))
    assert (metadata.started_ms, metadata.updated_ms) == (40, 60)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_end_keeps_all_but_state_and_update(is_commit: bool) -> None:
    transaction = a_transaction(state=TransactionState.ONGOING, partitions=(("orders", 1),))
    metadata = transaction.prepared(is_commit=is_commit, is_fence=False, now_ms=60)
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    assert (metadata.state, metadata.producer_epoch) == (state, 3)
    assert metadata.partitions == (("orders", 1),)
    assert (metadata.started_ms, metadata.updated_ms) == (40, 60)


@pytest.mark.parametrize(("epoch", "after"), [(3, 4), (32766, 32767), (32767, 32767)])
def test_a_fence_bumps_the_epoch_and_forgets_the_last_one(epoch: int, after: int) -> None:
    transaction = a_transaction(epoch, last_epoch=2, state=TransactionState.ONGOING)
    metadata = transaction.prepared(is_commit=False, is_fence=True, now_ms=60)
    assert (metadata.state, metadata.producer_epoch) == (TransactionState.PREPARE_ABORT, after)
    transaction.begin(TransactionState.PREPARE_EPOCH_FENCE)
    assert transaction.metadata.producer_epoch == epoch  # until it is committed (KAFKA-9666)
    transaction.apply(metadata)
    assert (transaction.metadata.producer_epoch, transaction.last_epoch) == (after, -1)


def test_a_complete_one_has_no_partitions_and_keeps_its_start() -> None:
    transaction = a_transaction(state=TransactionState.PREPARE_COMMIT, partitions=(("orders", 1),))
    metadata = transaction.completed(55)
    assert (metadata.state, metadata.partitions) == (TransactionState.COMPLETE_COMMIT, ())
    assert (metadata.started_ms, metadata.updated_ms) == (40, 55)
