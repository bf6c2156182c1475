"""From a decided end to its completion: a marker in every partition, then CompleteX in the log.

Source: docs/spec/transactions.md §2.2, §3.1, §3.3 and §3.4. An end that is decided is completed by
whoever leads the partition of its id, if need be by one node after the other. A second marker
changes nothing, so that each begins with all of the partitions.

- A completion belongs to its id and term as an object, and is never looked up by name: answers to
  markers of a former term must not touch the present one (KAFKA-16352).
- Exactly one CompleteX is appended for each PrepareX; while that fails it is tried again, as long
  as the term runs. Nothing here waits: each step is called by the one before it (KAFKA-4399).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.coordinator.cooperative import CooperativeScheduler
from barnabas.coordinator.terms import LoadState
from barnabas.coordinator.timer import Deadline, TimerQueue
from barnabas.protocol.errors import ErrorCode

from .journal import TransactionJournal
from .ports import Markers, MarkerWrite, TopicPartition
from .transaction import Metadata, Transaction
from .transaction_record import key_of, value_of
from .transaction_registry import TransactionTerm
from .transaction_state import TransactionState
from .transitions import Transitions

log = logging.getLogger(__name__)

RETRY_FIRST_MS: Final = 100
RETRY_MOST_MS: Final = 1000
FENCED_ALARM_MS: Final = 10_000
"""A resignation that explains a refused marker has arrived after so long."""

_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class Completion:
    """One decided end on its way to be complete."""

    __slots__ = (
        "began",
        "coordinator_epoch",
        "fenced",
        "metadata",
        "retry",
        "retry_ms",
        "transaction",
        "unwritten",
    )

    def __init__(self, transaction: Transaction, metadata: Metadata, began: float) -> None:
        self.transaction = transaction
        self.coordinator_epoch = transaction.term.leader_epoch
        self.metadata = metadata
        """What CompleteX says."""
        self.began = began
        self.unwritten: dict[TopicPartition, None] = dict.fromkeys(transaction.metadata.partitions)
        """Partitions without their marker yet."""
        self.fenced: dict[TopicPartition, ErrorCode] = {}
        """Partitions that refused it, because somebody newer has been there."""
        self.retry: Deadline | None = None
        self.retry_ms = RETRY_FIRST_MS

    @property
    def is_current(self) -> bool:
        """Whether its term still runs and its id still waits for it."""
        transaction = self.transaction
        return (
            transaction.completion is self
            and transaction.term.load_state is LoadState.OWNED
            and transaction.term.keeps(transaction)
        )


class Completions:
    """Has markers written and transactions completed."""

    def __init__(
        self,
        markers: Markers,
        journal: TransactionJournal,
        transitions: Transitions,
        timers: TimerQueue,
        scheduler: CooperativeScheduler,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._markers = markers
        self._journal = journal
        self._transitions = transitions
        self._timers = timers
        self._scheduler = scheduler
        self._loop = loop
        self._now_ms = now_ms
        self.completed = 0
        """How many transactions were completed, and how long that took from their decision on."""
        self.seconds = 0.0
        self.seconds_longest = 0.0

    def begin(self, transaction: Transaction) -> None:
        """The end of this one is decided and committed, just now or in an earlier term."""
        assert transaction.completion is None
        metadata = transaction.completed(self._now_ms())
        transaction.begin(metadata.state)
        completion = Completion(transaction, metadata, self._loop.time())
        transaction.completion = completion
        if completion.unwritten:
            self._send(completion)
        else:
            self._complete(completion)

    def end(self, transaction: Transaction) -> None:
        """The term of this one is over: whoever leads now begins anew."""
        completion, transaction.completion = transaction.completion, None
        if completion is not None and completion.retry is not None:
            self._timers.end(completion.retry)

    def epoch_raised(self, term: TransactionTerm) -> None:
        """The term goes on under a higher leader epoch: send what is not written under that.

        Somebody may have led in between, for whose markers the old epoch is refused (KAFKA-15468).
        """
        stale = [
            completion
            for transaction in term.unfinished
            if (completion := transaction.completion) is not None
            and completion.coordinator_epoch != term.leader_epoch
            and completion.unwritten
        ]
        if stale:
            self._markers.drop(term.partition)
            self._scheduler.run(stale, self._replace)

    def _replace(self, former: Completion) -> None:
        """Another object in its place, so that answers to come for the former one are ignored."""
        if not former.is_current:
            return  # replaced, or the term ended, before its turn came
        transaction = former.transaction
        self.end(transaction)
        completion = Completion(transaction, former.metadata, former.began)
        completion.unwritten = former.unwritten
        transaction.completion = completion
        self._send(completion)

    # -- markers ---------------------------------------------------------------------------------

    def _send(self, completion: Completion) -> None:
        transaction = completion.transaction
        decided, term = transaction.metadata, transaction.term
        self._markers.send(
            MarkerWrite(
                transaction_partition=term.partition,
                coordinator_epoch=completion.coordinator_epoch,
                producer_id=decided.producer_id,
                producer_epoch=decided.producer_epoch,
                is_commit=decided.state is TransactionState.PREPARE_COMMIT,
                partitions=tuple(completion.unwritten),
                is_current=lambda: completion.is_current,
                on_written=lambda partition, code: self._on_written(completion, partition, code),
            )
        )

    def _on_written(
        self, completion: Completion, partition: TopicPartition, code: ErrorCode
    ) -> None:
        """The marker is in one partition, or never will be."""
        if not completion.is_current or partition not in completion.unwritten:
            return  # of a former term, or said twice
        if code in _FENCED:
            self._on_fenced(completion, partition, code)
            return
        if code:
            # No code that is known may hold up a transaction for ever (KAFKA-9749).
            log.error(
                "wrote no marker id=%s partition=%s-%d code=%s",
                *(completion.transaction.transactional_id, *partition, code.name),
            )
            self._after(completion)
            return
        del completion.unwritten[partition]
        if not completion.unwritten:
            self._complete(completion)

    def _on_fenced(
        self, completion: Completion, partition: TopicPartition, code: ErrorCode
    ) -> None:
        """Somebody newer has been there: they complete it, and this term is about to end.

        If it does not end, they were not there. Of a higher producer epoch that is sure: this
        coordinator alone gives epochs. Anybody who may write to a partition can make one known
        there, by a batch without a transaction. What would be ended cannot be open there any more,
        as lower epochs are refused, so the transaction is completed without that marker; in Kafka
        its id is busy for ever. If somebody newer coordinates all the same, CompleteX is refused.
        """
        is_first = not completion.fenced
        completion.fenced[partition] = code
        if is_first:
            deadline = Deadline(lambda: self._on_still_here(completion))
            self._timers.start(deadline, FENCED_ALARM_MS)

    def _on_still_here(self, completion: Completion) -> None:
        """No resignation came that would explain refused markers."""
        if not completion.is_current:
            return
        fenced, completion.fenced = completion.fenced, {}
        is_outdated = ErrorCode.TRANSACTION_COORDINATOR_FENCED in fenced.values()
        transaction = completion.transaction
        log.error(
            "%s: its markers are refused, and yet its coordinator is here "
            "id=%s producer=%d epoch=%d refused=%s",
            "cannot complete a transaction" if is_outdated else "completed without some markers",
            transaction.transactional_id,
            transaction.metadata.producer_id,
            transaction.metadata.producer_epoch,
            {f"{topic}-{index}": code.name for (topic, index), code in fenced.items()},
        )
        waited_for = len(completion.unwritten)
        for partition, code in fenced.items():
            if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                completion.unwritten.pop(partition, None)
        if waited_for and not completion.unwritten:
            self._complete(completion)

    # -- CompleteX -------------------------------------------------------------------------------

    def _complete(self, completion: Completion) -> None:
        """All markers are written: say so in the log, and only then to the producer."""
        transaction = completion.transaction
        if completion.retry is not None:
            self._timers.end(completion.retry)  # it was for markers, and those are written
        entry = key_of(transaction.transactional_id), value_of(completion.metadata)
        self._journal.write(
            transaction.term,
            entry,
            self._transitions.timeout_ms(transaction, completion.metadata),
            lambda code: self._on_complete(completion, code),
        )

    def _on_complete(self, completion: Completion, code: ErrorCode) -> None:
        transaction = completion.transaction
        if not completion.is_current:
            return
        if code:
            log.warning(
                "completed no transaction yet id=%s code=%s",
                transaction.transactional_id,
                code.name,
            )
            self._after(completion)
            return
        transaction.completion = None
        transaction.apply(completion.metadata)
        seconds = self._loop.time() - completion.began
        self.completed += 1
        self.seconds += seconds
        self.seconds_longest = max(self.seconds_longest, seconds)

    def _after(self, completion: Completion) -> None:
        """Try again later, later each time, as long as the term runs."""

        def retry() -> None:
            if not completion.is_current:
                return
            if completion.unwritten:
                self._send(completion)
            else:
                self._complete(completion)

        if completion.retry is not None and completion.retry.is_running:
            return  # several partitions failed at once: one retry is for all
        completion.retry = Deadline(retry)
        self._timers.start(completion.retry, completion.retry_ms)
        completion.retry_ms = min(2 * completion.retry_ms, RETRY_MOST_MS)
