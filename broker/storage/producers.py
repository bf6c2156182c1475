"""What one partition knows of the producers that number their batches.

A batch that was appended before is recognised by its sequence numbers and answered again; one
that does not follow the last is refused. Source: log.md sections 7.1, 7.2 and 7.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.header import CONTROL, TRANSACTIONAL, sequence_after

from .entries import Entry

BATCHES_MAX: Final = 5
"""A producer has at most so many requests under way, so it repeats none older."""

NO_TRANSACTION: Final = -1


class SentBatch(NamedTuple):
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
class Producer:
    """One producer id in one partition."""

    epoch: int
    coordinator_epoch: int = -1
    timestamp: int = -1
    """Newest of its last batch or marker; records may tell of a time long past."""
    transaction_start: int = NO_TRANSACTION
    """First offset of the transaction that is open, if any."""
    batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))
    """The newest last; all of the current epoch."""
    heard_ms: int = field(default=-1, compare=False)
    """Wall clock of the first look after its last batch."""
    is_fresh: bool = field(default=False, compare=False)
    """It has sent something since the last look."""

    def next_sequence(self, epoch: int) -> int | None:
        """What a batch of ``epoch`` must begin with; None when anything will do."""
        if epoch != self.epoch:
            return 0
        if not self.batches:
            return None
        last = self.batches[-1].last_sequence
        return 0 if last < 0 else sequence_after(last, 1)


class Producers:
    """The producers of one partition by their ids."""

    __slots__ = ("_producers", "end_offset")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self.end_offset = 0
        """The log up to here has been taken into account."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    def get(self, producer_id: int) -> Producer | None:
        """None for one never heard of, or forgotten."""
        return self._producers.get(producer_id)

    def put(self, producer_id: int, producer: Producer) -> None:
        """Take over what a snapshot says."""
        self._producers[producer_id] = producer

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        *,
        is_transactional: bool,
        is_client: bool,
    ) -> SentBatch | None:
        """Judge a batch before it is written.

        Returns the batch in the log when this one repeats it, None when it is to be appended.
        Of the coordinators' own batches only the epoch is judged. Raises Refused.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if is_client and epoch == producer.epoch:
            for sent in producer.batches:
                if sent.base_sequence == base_sequence and sent.last_sequence == last_sequence:
                    return sent
        if epoch < producer.epoch:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} is at epoch {producer.epoch}",
            )
        if is_client:
            expected = producer.next_sequence(epoch)
            if expected is not None and base_sequence != expected:
                raise Refused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} sent {base_sequence}, not {expected}",
                )
            if producer.transaction_start != NO_TRANSACTION and not is_transactional:
                raise Refused(
                    ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} is in a transaction"
                )
        return None

    def note(self, batch: Entry, *, coordinator_epoch: int = -1) -> None:
        """Take a batch into account that is in the log; ``coordinator_epoch`` of a marker."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = Producer(batch.producer_epoch)
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        producer.timestamp = batch.max_timestamp
        producer.is_fresh = True
        if batch.attributes & CONTROL:
            producer.transaction_start = NO_TRANSACTION
            producer.coordinator_epoch = max(producer.coordinator_epoch, coordinator_epoch)
            return
        delta = batch.last_offset - batch.base_offset
        producer.batches.append(
            SentBatch(
                batch.base_sequence,
                sequence_after(batch.base_sequence, delta),
                batch.last_offset,
                delta,
                batch.max_timestamp,
            )
        )
        if batch.attributes & TRANSACTIONAL and producer.transaction_start == NO_TRANSACTION:
            producer.transaction_start = batch.base_offset

    def expire(self, now_ms: int, idle_ms: int) -> None:
        """Forget producers silent for longer than ``idle_ms``, unless a transaction is open.

        Who sends records of long ago is not silent, as Kafka takes it to be.
        """
        kept = {}
        for producer_id, producer in self._producers.items():
            if producer.is_fresh:
                producer.is_fresh, producer.heard_ms = False, now_ms
            heard_ms = max(producer.timestamp, producer.heard_ms)
            if producer.transaction_start != NO_TRANSACTION or now_ms - heard_ms <= idle_ms:
                kept[producer_id] = producer
        self._producers = kept

    def clear(self) -> None:
        """Forget all."""
        self._producers.clear()
        self.end_offset = 0
