"""What one partition knows of the producers that number their batches.

A batch that was appended before is recognised by its sequence numbers and answered again; one
that does not follow the last is refused. Of one producer id, in one partition (KIP-98):

    epoch 3 | batches  10..14  15..15  16..19          at most five, the newest last
                       @100    @105    @106             their offsets, to answer a repeated one
    transaction_start 105                               first offset of the open one; -1 for none

Leaders, followers, truncation and restarts come to this state by the same method, ``note``, from
the batches alone: whoever is elected next refuses and answers what its predecessor would have.
Source: docs/spec/log.md §7.1 to §7.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.broker.storage.segment.batch_headers import BatchHeader
from barnabas.broker.storage.segment.transaction_index import AbortedTransaction
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import Buffer
from barnabas.protocol.records.control import Marker
from barnabas.protocol.records.header import CONTROL, TRANSACTIONAL, sequence_after

from .ongoing_transactions import NO_TRANSACTION, Ending, OngoingTransactions, ending_in
from .verification_guards import NOTHING_TO_VERIFY, VerificationGuard, VerificationGuards

BATCHES_MAX: Final = 5
"""A producer has at most so many requests under way, so it repeats none older."""


class BatchMetadata(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last minus first offset."""
    timestamp: int

    @property
    def base_offset(self) -> int:
        """Of the batch's first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerStateEntry:
    """One producer id in one partition."""

    epoch: int
    coordinator_epoch: int = -1
    timestamp: int = -1
    """Newest of its last batch or marker; records may tell of a time long past."""
    transaction_start: int = NO_TRANSACTION
    """First offset of the transaction that is open, if any."""
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))
    """The newest last; all of the current epoch."""
    last_seen_ms: int = field(default=-1, compare=False)
    """Wall clock of the first look after its last batch."""
    is_fresh: bool = field(default=False, compare=False)
    """It has sent something since the last look."""

    def next_sequence(self, epoch: int) -> int:
        """What a batch of ``epoch`` must begin with."""
        if epoch != self.epoch or not self.batches:
            return 0
        last = self.batches[-1].last_sequence
        return 0 if last < 0 else sequence_after(last, 1)

    def has_ended(self, batch: BatchMetadata) -> bool:
        """Whether the transaction is over to which this batch of its belongs."""
        return self.transaction_start == NO_TRANSACTION or (
            batch.base_offset < self.transaction_start
        )


class ProducerStateManager:
    """The producers of one partition by their ids."""

    __slots__ = ("_producers", "_vouched", "end_offset", "guards", "transactions")

    def __init__(self, known: Mapping[int, ProducerStateEntry] | None = None) -> None:
        self._producers = dict(known or {})
        self.transactions = OngoingTransactions(
            {
                producer_id: producer.transaction_start
                for producer_id, producer in self._producers.items()
                if producer.transaction_start != NO_TRANSACTION
            }
        )
        self.guards = VerificationGuards()
        self._vouched: dict[int, str] = {}
        """The transactional id of each producer whose coordinator was asked: it never has another.
        In memory only, so that a new leader asks once about what is open.
        """
        self.end_offset = 0
        """The log up to here has been taken into account."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return iter(self._producers.items())

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """None for one never heard of, or forgotten."""
        return self._producers.get(producer_id)

    def oldest_open(self) -> ProducerStateEntry | None:
        """The producer of the transaction that has been open for longest; None without one."""
        producer_id = self.transactions.oldest_producer()
        return None if producer_id is None else self._producers.get(producer_id)

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        *,
        is_transactional: bool,
        is_client: bool,
    ) -> BatchMetadata | None:
        """Judge a batch before it is written.

        Returns the batch in the log when this one repeats it, None when it is to be appended.
        Of the coordinators' own batches only the epoch is judged. Raises Refused.
        """
        # Unknown or forgotten: any sequence number may come, since retention may have taken its
        # batches. A check here would make a producer fail that was idle for long (KIP-360).
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        # Repeated ones first: the answer to a batch that was appended is where it is, whatever came
        # behind it meanwhile. More than five under way cannot be told apart from a lost one
        # (KAFKA-5494), hence the refusal below.
        if is_client and epoch == producer.epoch:
            for sent in producer.batches:
                if sent.base_sequence == base_sequence and sent.last_sequence == last_sequence:
                    # A client waits for what it sent before it ends a transaction: this is no
                    # repetition. librdkafka gives the sequences of what it aborted away again
                    # when it never got the answer; Kafka would lose its new records in silence.
                    if is_transactional and producer.has_ended(sent):
                        break
                    return sent
        # A zombie: another life of this producer has the id now (KIP-98).
        if epoch < producer.epoch:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} is at epoch {producer.epoch}",
            )
        if is_client:
            expected = producer.next_sequence(epoch)
            if base_sequence != expected:
                raise Refused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} sent {base_sequence}, not {expected}",
                )
            # Inside a transaction nothing may be visible by itself.
            if producer.transaction_start != NO_TRANSACTION and not is_transactional:
                raise Refused(
                    ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} is in a transaction"
                )
        return None

    def check_marker(self, producer_id: int, control_batch: Buffer) -> None:
        """Judge a control batch before it is written; of the producer itself see :meth:`check`.

        Raises Refused for a coordinator that has a successor.
        """
        producer, ending = self._producers.get(producer_id), ending_in(control_batch)
        if producer and ending and ending.coordinator_epoch < producer.coordinator_epoch:
            raise Refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {producer.coordinator_epoch} wrote for {producer_id}",
            )

    def begin_verification(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        now_ms: int,
    ) -> VerificationGuard:
        """What the append of a transactional batch is to be checked with.

        NOTHING_TO_VERIFY when the transaction is open in this log, under this id. An open one of
        another epoch does not count: a made-up higher epoch would be let in, and end the true
        one's. Nor does that of another id: producer ids are easily guessed, and who may use one
        transactional id is not to write into the transactions of others.
        """
        if self._is_settled(producer_id, epoch) and (
            self._vouched.get(producer_id) == transactional_id
            or epoch < self._producers[producer_id].epoch
        ):
            return NOTHING_TO_VERIFY
        return self.guards.take(producer_id, epoch, base_sequence, now_ms)

    def vouch(self, transactional_id: str, producer_id: int) -> None:
        """The coordinator of this id says that the producer is its own."""
        self._vouched[producer_id] = transactional_id

    def check_verified(
        self, producer_id: int, epoch: int, base_sequence: int, guard: VerificationGuard
    ) -> None:
        """Judge a transactional batch in the turn in which it is appended.

        Of a coordinator's own batch, which has no sequence, -1 is given. Raises Refused: 48, 45.
        """
        if not self._is_settled(producer_id, epoch):
            self.guards.check(producer_id, epoch, base_sequence, guard)

    def _is_settled(self, producer_id: int, epoch: int) -> bool:
        """Whether the log alone can judge a transactional batch, by :meth:`check`."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return False
        is_open = producer.transaction_start != NO_TRANSACTION and epoch == producer.epoch
        return is_open or epoch < producer.epoch  # a zombie is refused whoever vouches for it

    def note(self, batch: BatchHeader, data: Buffer) -> AbortedTransaction | None:
        """Take a batch into account that is in the log; of ``data`` only a marker is looked at.

        Returns the transaction that it aborted, if it did.
        """
        if batch.attributes & CONTROL:
            ending = ending_in(data)
            return None if ending is None else self._end(batch, ending)
        producer = self._updated(batch)
        delta = batch.last_offset - batch.base_offset
        producer.batches.append(
            BatchMetadata(
                batch.base_sequence,
                sequence_after(batch.base_sequence, delta),
                batch.last_offset,
                delta,
                batch.max_timestamp,
            )
        )
        if batch.attributes & TRANSACTIONAL:
            self.guards.remove(batch.producer_id)
            if producer.transaction_start == NO_TRANSACTION:
                producer.transaction_start = batch.base_offset
                self.transactions.begin(batch.producer_id, batch.base_offset)
        return None

    def _updated(self, batch: BatchHeader) -> ProducerStateEntry:
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        if producer.epoch != batch.producer_epoch:
            # Sequence numbers begin anew with an epoch: old ones would match by chance.
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        producer.timestamp = batch.max_timestamp
        producer.is_fresh = True
        return producer

    def _end(self, batch: BatchHeader, ending: Ending) -> AbortedTransaction | None:
        producer_id, marker_offset = batch.producer_id, batch.last_offset
        producer = self._updated(batch)
        self.guards.remove(producer_id)
        producer.coordinator_epoch = max(producer.coordinator_epoch, ending.coordinator_epoch)
        start, producer.transaction_start = producer.transaction_start, NO_TRANSACTION
        if start == NO_TRANSACTION:
            return None  # a coordinator repeats its marker after a failover
        self.transactions.end(producer_id, marker_offset)
        if ending.marker is Marker.COMMIT:
            return None
        # After the end of this one: its own first offset must not count.
        stable = self.transactions.stable_after(marker_offset)
        return AbortedTransaction(producer_id, start, marker_offset, stable)

    def expire(self, now_ms: int, idle_ms: int) -> None:
        """Forget producers silent for longer than ``idle_ms``, unless a transaction is open.

        Who sends records of long ago is not silent, as Kafka takes it to be.
        """
        kept = {}
        for producer_id, producer in self._producers.items():
            if producer.is_fresh:
                producer.is_fresh, producer.last_seen_ms = False, now_ms
            last_seen_ms = max(producer.timestamp, producer.last_seen_ms)
            if producer.transaction_start != NO_TRANSACTION or now_ms - last_seen_ms <= idle_ms:
                kept[producer_id] = producer
        self._producers = kept
        self._vouched = {key: name for key, name in self._vouched.items() if key in kept}
        self.guards.expire(now_ms, idle_ms)

    def clear(self) -> None:
        """Forget all."""
        self._producers.clear()
        self._vouched.clear()
        self.transactions = OngoingTransactions()
        self.guards.clear()
        self.end_offset = 0
