"""What is learnt of each entry in the first pass of a compaction, and kept in the second.

Source: docs/spec/log.md §5.4 to §5.7; §9 pitfalls P23 and P25. The rules for control batches, in
short: a marker goes when nothing of its transaction is left and its delete horizon has passed; the
last batch of a producer that is still remembered stays, without records if need be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.protocol.log_files.aborted_transactions import AbortedTransaction
from barnabas.protocol.records import batch
from barnabas.protocol.records.header import CONTROL, DELETE_HORIZON, INT64_MAX, Header
from barnabas.protocol.records.walk import Entry

from .cleaned_transactions import CleanedTransactions
from .offset_map import OffsetMap
from .record_removal import (
    RecordSpan,
    emptied,
    record_spans,
    rewritten,
    rewritten_messages,
    section_of,
)

Verdict = tuple[bytes | bytearray | None, AbortedTransaction | None]
"""What to write in an entry's place, None for nothing; and what the transaction index must say."""


def live_keys(
    entry: Entry, transactions: CleanedTransactions, first: int
) -> list[tuple[bytes, int]]:
    """Keys and offsets of the records from ``first`` on that count; raises CorruptRecords.

    Entries are shown in their order, with one object for the transactions of the whole pass.
    """
    data = entry.data
    if batch.is_control(data):
        transactions.end(data, entry.last_offset)
        return []
    if transactions.is_aborted(data, entry.last_offset) or entry.last_offset < first:
        return []
    if entry.magic < 2:
        return [
            (record.key, record.offset)
            for record in batch.records(data)
            if record.key is not None and record.offset >= first
        ]
    head = batch.header(data)
    base = head.base_offset
    return [
        (span.key, base + span.offset_delta)
        for span in record_spans(section_of(data, head), head.record_count)
        if span.key is not None and base + span.offset_delta >= first
    ]


class ActiveProducer(NamedTuple):
    """A producer whose place in its sequence must survive."""

    producer_id: int
    epoch: int
    last_data_offset: int
    """Of its last batch of data; -1 when only a marker is known."""


class EntryFilter:
    """Judges the entries of a log in their order, all segments of one pass."""

    def __init__(
        self,
        newest: OffsetMap,
        transactions: CleanedTransactions,
        producers: Iterable[ActiveProducer],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._now_ms = now_ms
        # The greatest timestamp: tombstones that are kept for ever have it.
        self._horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)
        self._newest = newest
        self._transactions = transactions
        self._producers = {producer.producer_id: producer for producer in producers}
        self.keeps_legacy_tombstones = True
        """Whether tombstones of magic 0 and 1 stay: decided by the age of their segment."""
        self.dropped = 0
        """Records that were left out."""

    def judge(self, entry: Entry) -> Verdict:
        """What becomes of one entry. Raises CorruptRecords."""
        if entry.magic < 2:
            return self._judge_messages(entry), None
        head = batch.header(entry.data)
        if head.attributes & CONTROL:
            return self._judge_control(entry, head)
        if self._transactions.is_aborted(entry.data, entry.last_offset):
            self.dropped += head.record_count
            return self._without_records(entry, head), None
        return self._judge_data(entry, head), None

    def _judge_data(self, entry: Entry, head: Header) -> bytes | bytearray | None:
        section = section_of(entry.data, head)
        kept, has_tombstones = self._wanted(head, record_spans(section, head.record_count))
        self.dropped += head.record_count - len(kept)
        if not kept:
            return self._without_records(entry, head)
        sets_horizon = has_tombstones and not head.attributes & DELETE_HORIZON
        if len(kept) == head.record_count and not sets_horizon:
            return entry.data
        return rewritten(head, section, kept, self._horizon_ms if sets_horizon else None)

    def _wanted(self, head: Header, found: Sequence[RecordSpan]) -> tuple[list[RecordSpan], bool]:
        """The records that stay, and whether there are tombstones among them."""
        base, latest, last = head.base_offset, self._newest.latest, self._newest.last
        keeps_tombstones = not self._is_past_horizon(head)
        kept, has_tombstones = [], False
        for span in found:
            offset = base + span.offset_delta
            if offset <= latest and (
                span.key is None
                or offset < last(span.key)
                or not (span.has_value or keeps_tombstones)
            ):
                continue
            kept.append(span)
            has_tombstones = has_tombstones or not span.has_value
        return kept, has_tombstones

    def _is_past_horizon(self, head: Header) -> bool:
        return bool(head.attributes & DELETE_HORIZON) and head.base_timestamp <= self._now_ms

    def _judge_control(self, entry: Entry, head: Header) -> Verdict:
        """A marker has one record, whose key says nothing about any other.

        Source: docs/spec/log.md §9 P23.
        """
        is_spent, aborted = self._transactions.end(entry.data, entry.last_offset)
        if not head.record_count or (is_spent and self._is_past_horizon(head)):
            self.dropped += head.record_count
            return self._without_records(entry, head), None
        if is_spent and not head.attributes & DELETE_HORIZON:
            section = section_of(entry.data, head)
            marker = record_spans(section, head.record_count)
            return rewritten(head, section, marker, self._horizon_ms), aborted
        return entry.data, aborted

    def _without_records(self, entry: Entry, head: Header) -> bytes | bytearray | None:
        """An empty batch for the last one of a producer that is remembered, nothing for others."""
        producer = self._producers.get(head.producer_id) if head.producer_id >= 0 else None
        if producer is None:
            return None
        if producer.last_data_offset >= 0:
            is_last = entry.last_offset == producer.last_data_offset
        else:
            is_last = bool(head.attributes & CONTROL) and head.producer_epoch == producer.epoch
        return emptied(head) if is_last else None

    def _judge_messages(self, entry: Entry) -> bytes | None:
        """Magic 0 and 1, which are never converted."""
        latest, last = self._newest.latest, self._newest.last
        found = list(batch.records(entry.data))
        kept = [
            record
            for record in found
            if record.offset > latest
            or (
                record.key is not None
                and record.offset >= last(record.key)
                and (record.value is not None or self.keeps_legacy_tombstones)
            )
        ]
        self.dropped += len(found) - len(kept)
        if not kept:
            return None
        return entry.data if len(kept) == len(found) else rewritten_messages(entry.data, kept)
