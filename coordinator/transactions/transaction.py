"""One transactional id: what is known of it, the transition under way, and every next metadata.

Source: docs/spec/transactions.md §2.1 to §2.4. Pure: no loop, no clock; time is an argument.

- **What the log has decided is what counts.** A transition is computed, appended and only then
  applied: until its append is decided the id has it pending, and its metadata stays as it was.
- **One transition at a time.** A second one, computed from the same metadata, would undo the first.
- **A pending transition always ends**: applied, taken back, or gone with the id (KAFKA-5351).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.protocol.errors import ErrorCode, Refused

from .transaction_state import (
    MAY_EXPIRE,
    PENDING_ONLY,
    PREDECESSORS,
    PREPARED,
    RULES,
    StateRules,
    TransactionState,
)

if TYPE_CHECKING:
    from barnabas.coordinator.timer import Deadline

    from .completion import Completion
    from .transaction_registry import TransactionTerm

TopicPartition: TypeAlias = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 32767
"""Kept for a fence: no producer is ever given it."""
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""From this epoch on the next producer gets a new producer id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a record of the transaction log says of an id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    """In the order in which they were added, each once."""
    updated_ms: int
    started_ms: int = NO_TIME
    """When its transaction began; kept when that is complete, -1 before the first one."""

    def __post_init__(self) -> None:
        assert self.state not in PENDING_ONLY


@dataclass(frozen=True, slots=True)
class Identity:
    """What InitProducerId gives: a producer id and epoch, and the epoch that it replaces."""

    producer_id: int
    producer_epoch: int
    last_epoch: int


class Transaction:
    """A transactional id as the coordinator of its partition knows it.

    ``pending`` is the state that its pending transition leads to, None while there is none.
    ``last_producer_id`` and ``last_epoch`` are what a producer had before its epoch was bumped,
    so that the retry of an InitProducerId whose answer was lost gets the same answer. They are not
    in the log: after a takeover such a retry is fenced.
    """

    __slots__ = (
        "completion",
        "deadline",
        "last_epoch",
        "last_producer_id",
        "metadata",
        "pending",
        "term",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, metadata: Metadata, term: TransactionTerm) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.term = term
        self.pending: TransactionState | None = None
        self.last_producer_id = NO_PRODUCER_ID
        self.last_epoch = NO_EPOCH
        self.completion: Completion | None = None
        """The markers of a prepared end; None in every other state."""
        self.deadline: Deadline | None = None
        """When the open transaction times out; None as long as none was ever open here."""

    @property
    def state(self) -> TransactionState:
        """Its state, whatever is pending."""
        return self.metadata.state

    @property
    def rules(self) -> StateRules:
        """What its state answers."""
        return RULES[self.metadata.state]

    @property
    def may_expire(self) -> bool:
        """Whether it may be forgotten as soon as it is old enough."""
        return self.pending is None and self.state in MAY_EXPIRE

    # -- the pending transition ------------------------------------------------------------------

    def begin(self, pending: TransactionState) -> None:
        """A transition to ``pending`` was computed, and is about to be appended."""
        assert self.pending is None, f"{self.pending} is pending"
        assert self.state in PREDECESSORS[pending], f"{self.state.value} -> {pending.value}"
        self.pending = pending

    def apply(self, metadata: Metadata) -> None:
        """The log has it: the pending transition is over."""
        pending, after = self.pending, metadata.state
        assert pending is not None
        before = self.state
        if pending is TransactionState.PREPARE_EPOCH_FENCE:
            before = pending
        else:
            assert after is pending, f"{after.value} instead of {pending.value}"
        assert before in PREDECESSORS[after], f"{before.value} -> {after.value}"
        self.metadata = metadata
        self.pending = None
        self.term.note(self)
        if pending is TransactionState.PREPARE_EPOCH_FENCE:
            self.last_epoch = NO_EPOCH

    def apply_identity(self, identity: Identity, metadata: Metadata) -> None:
        """The same after InitProducerId."""
        self.last_producer_id = self.metadata.producer_id
        self.last_epoch = identity.last_epoch
        self.apply(metadata)

    def take_back(self) -> None:
        """The append failed: as if nothing had been asked."""
        assert self.pending is not None
        self.pending = None

    # -- what a transition writes ----------------------------------------------------------------

    def initialised(self, identity: Identity, timeout_ms: int, now_ms: int) -> Metadata:
        """After InitProducerId: no transaction, for a producer that is new or begins anew."""
        return Metadata(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            updated_ms=now_ms,
        )

    def with_partitions(self, added: Iterable[TopicPartition], now_ms: int) -> Metadata:
        """An open transaction with these partitions, too. The timeout counts from the first ones.

        More partitions do not extend it, or a producer that hangs half-way could keep its readers
        waiting for ever (KAFKA-14638).
        """
        known = self.metadata
        is_open = known.state is TransactionState.ONGOING
        earlier = known.partitions if is_open else ()
        return replace(
            known,
            state=TransactionState.ONGOING,
            partitions=tuple(dict.fromkeys((*earlier, *added))),
            started_ms=known.started_ms if is_open else now_ms,
            updated_ms=now_ms,
        )

    def prepared(self, *, is_commit: bool, is_fence: bool, now_ms: int) -> Metadata:
        """The end of the open transaction, as it is decided.

        A fence bumps the epoch: markers of the next epoch make every partition refuse what the
        former producer still sends (KAFKA-6119).
        """
        known = self.metadata
        assert not (is_commit and is_fence)
        epoch = known.producer_epoch
        return replace(
            known,
            producer_epoch=min(epoch + 1, EPOCH_MAX) if is_fence else epoch,
            state=(
                TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
            ),
            updated_ms=now_ms,
        )

    def completed(self, now_ms: int) -> Metadata:
        """The end when all markers are written; ``now_ms`` is when it was prepared."""
        known = self.metadata
        return replace(known, state=PREPARED[known.state], partitions=(), updated_ms=now_ms)

    # -- producer ids ----------------------------------------------------------------------------

    def knows_producer(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer that names these may have a new epoch, as far as its id goes.

        Its own id, or the former one if that was given up only because its epochs were exhausted:
        then the producer never got the answer. An id that was made just now takes anybody: the
        former one of this name has expired, and its producer may go on.
        """
        known = self.metadata
        return (
            producer_id == known.producer_id
            or (producer_id == self.last_producer_id and epoch >= EPOCH_EXHAUSTED)
            or known.producer_epoch == NO_EPOCH
        )

    def may_be_of(self, producer_id: int, epoch: int) -> bool:
        """Whether the open transaction is of the producer that says so, or it says nothing."""
        known = self.metadata
        return producer_id == NO_PRODUCER_ID or (
            (producer_id, epoch) == (known.producer_id, known.producer_epoch)
        )

    def needs_producer_id(self, expected_epoch: int) -> bool:
        """Whether the next identity has a producer id of its own, the epochs being exhausted."""
        current = self.metadata.producer_epoch
        return current >= EPOCH_EXHAUSTED and expected_epoch in (NO_EPOCH, current)

    def next_identity(self, expected_epoch: int, fresh_producer_id: int) -> Identity:
        """What InitProducerId gives; ``expected_epoch`` is -1 when no producer was named.

        ``fresh_producer_id`` is looked at only where :meth:`needs_producer_id` says so. Raises
        Refused(PRODUCER_FENCED).
        """
        known = self.metadata
        current = known.producer_epoch
        if self.needs_producer_id(expected_epoch):
            assert fresh_producer_id != NO_PRODUCER_ID
            return Identity(fresh_producer_id, 0, expected_epoch)
        if expected_epoch == NO_EPOCH:
            return Identity(known.producer_id, current + 1, NO_EPOCH)
        if current in (NO_EPOCH, expected_epoch):
            return Identity(known.producer_id, current + 1, current)
        if expected_epoch == self.last_epoch:
            # A retry whose answer was lost. Kafka throws here when the epochs are exhausted.
            return Identity(known.producer_id, current, self.last_epoch)
        raise Refused(ErrorCode.PRODUCER_FENCED)
