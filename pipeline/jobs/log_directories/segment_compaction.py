"""One partition's log as compaction would leave it: what that saves, and a copy if one is wanted.

The rules are those of a running cleaner (protocol/records/compaction/compaction_filter.py), over
the whole log in one pass, the last segment too. Runs on executors; what is read is never written
to. Source: docs/spec/pipeline.md §4, job 6; docs/spec/log.md §5.3 to §5.7.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from barnabas.client.cluster import TopicPartition
from barnabas.pipeline.source.segment_files import SegmentFile
from barnabas.protocol.log_files.aborted_transactions import (
    AbortedTransaction,
    BadTransactionIndex,
    parse_aborted,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.compaction.cleaned_transactions import CleanedTransactions
from barnabas.protocol.records.compaction.compaction_filter import (
    ActiveProducer,
    EntryFilter,
    live_keys,
)
from barnabas.protocol.records.compaction.offset_map import OffsetMap
from barnabas.protocol.records.compaction.record_removal import (
    emptied,
    section_of,
)
from barnabas.protocol.records.compaction.record_removal import (
    record_spans as fields_of,
)
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import CONTROL, TRANSACTIONAL, Header
from barnabas.protocol.records.header_walk import HeaderWalk
from barnabas.protocol.records.walk import Entry, Stop, Walk

from .log_copy import LogCopy

SCHEMA: Final = (
    StructType()
    .add("directory", StringType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("segments", IntegerType())
    .add("bytes", LongType())
    .add("records", LongType())
    .add("bytes_after", LongType())
    .add("records_after", LongType())
    .add("keys", LongType())
    .add("tombstones", LongType())
    .add("without_key", LongType())
    .add("compacted_to", LongType())
    .add("end", LongType())
    .add("bad", StringType())
)
"""``tombstones`` are those that stay; from ``compacted_to`` on the log stays as it is, since a
transaction is open there or the map of keys is full. ``bad`` says why there is no copy."""
LOGS: Final = (
    "directory string, topic string, partition int, "
    "files array<struct<path:string,base:bigint,size:bigint>>"
)
_LOAD_FACTOR: Final = 0.9
_FOREVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """How to compact, and where the copies go; ``out`` empty makes none."""

    out: str = ""
    now_ms: int
    delete_retention_ms: int
    producer_expiration_ms: int
    map_bytes: int
    segment_bytes: int


def compact_all(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, rules: CompactionConfig
) -> Iterator[pa.RecordBatch]:
    """A row for each log listed in ``batches``."""
    for listed in batches:
        for row in listed.to_pylist():
            topic_partition = TopicPartition(row["topic"], row["partition"])
            last = len(row["files"]) - 1
            files = [
                SegmentFile(
                    topic_partition, file["path"], file["base"], file["size"], number == last
                )
                for number, file in enumerate(row["files"])
            ]
            found = compact(Path(row["directory"]), files, rules)
            yield pa.RecordBatch.from_pylist([found], schema=schema)


def compact(
    directory: Path, files: Sequence[SegmentFile], rules: CompactionConfig
) -> dict[str, Any]:
    """A row of SCHEMA for the log in ``files``, all segments of ``directory``; and its copy."""
    work = _Pass(files, rules)
    problem, copy = None, None
    try:
        work.learn()
        if rules.out and work.figures["without_key"]:
            problem = "it has records without key, which compaction would remove"
        elif rules.out:
            copy = LogCopy(Path(rules.out), directory, rules.segment_bytes)
        work.copy(copy)
        if copy is not None:
            copy.finish()
    except (CorruptRecords, BadTransactionIndex, _Unreadable, OSError) as failure:
        problem = str(failure)
    finally:
        if copy is not None:
            copy.drop()
    return {
        "directory": str(directory),
        "topic": files[0].topic_partition.topic,
        "partition": files[0].topic_partition.partition,
        "segments": len(files),
        "bytes": sum(file.size for file in files),
        **work.figures,
        "bad": problem,
    }


class _Unreadable(Exception):  # noqa: N818 - reads as what happened
    """A segment that cannot be read to its end."""


@dataclass(slots=True)
class _Producer:
    """What the log says of a producer, up to its end."""

    epoch: int
    newest_ms: int
    last_data_offset: int = -1


@dataclass(slots=True)
class _Survey:
    """What must be known of a log before its first key is looked at; from headers alone."""

    end: int = 0
    stable_end: int = _FOREVER
    """Where the first transaction begins that has no end."""
    producers: dict[int, _Producer] = field(default_factory=dict)

    def active(self, since_ms: int) -> list[ActiveProducer]:
        """Producers that a broker would remember, as it does for a day."""
        return [
            ActiveProducer(number, producer.epoch, producer.last_data_offset)
            for number, producer in self.producers.items()
            if producer.newest_ms >= since_ms
        ]


def _survey(files: Sequence[SegmentFile]) -> _Survey:
    found, opened = _Survey(), dict[int, int]()
    for file in files:
        with _mapped(file) as data:
            for _, head in HeaderWalk(data):
                found.end = head.base_offset + max(head.last_offset_delta, 0) + 1
                if head.producer_id >= 0:
                    _note(found, opened, head)
    found.stable_end = min(opened.values(), default=_FOREVER)
    return found


def _note(found: _Survey, opened: dict[int, int], head: Header) -> None:
    producer = found.producers.setdefault(
        head.producer_id, _Producer(head.producer_epoch, head.max_timestamp)
    )
    producer.epoch = head.producer_epoch
    producer.newest_ms = max(producer.newest_ms, head.max_timestamp)
    if head.attributes & CONTROL:
        opened.pop(head.producer_id, None)
        return
    producer.last_data_offset = head.base_offset + head.last_offset_delta
    if head.attributes & TRANSACTIONAL:
        opened.setdefault(head.producer_id, head.base_offset)


class _Pass:
    """Learns the newest offset of each key, then goes through the log again."""

    def __init__(self, files: Sequence[SegmentFile], rules: CompactionConfig) -> None:
        self.figures: dict[str, int] = {}
        self._files = files
        self._rules = rules
        self._map = OffsetMap(rules.map_bytes, _LOAD_FACTOR)
        self._survey = _Survey()
        self._aborted: list[AbortedTransaction] = []

    def learn(self) -> None:
        """Fill the map, as far as it reaches and transactions have ended."""
        self._survey = _survey(self._files)
        self._aborted = [transaction for file in self._files for transaction in _aborted_of(file)]
        transactions = CleanedTransactions(self._aborted)
        without_key = 0
        for entry in self._entries():
            if entry.last_offset >= self._survey.stable_end:
                break
            keys = live_keys(entry, transactions, 0)
            if not self._map.add(keys):
                break
            self._map.latest = entry.last_offset
            is_dead = batch.is_control(entry.data) or transactions.is_aborted(
                entry.data, entry.last_offset
            )
            without_key += 0 if is_dead else _count(entry.data) - len(keys)
        self.figures |= {
            "keys": len(self._map),
            "without_key": without_key,
            "compacted_to": self._map.latest + 1,
            "end": self._survey.end,
        }

    def copy(self, output: LogCopy | None) -> None:
        """Judge every entry, count what stays, and put it into ``output``."""
        rules = self._rules
        kept = EntryFilter(
            self._map,
            CleanedTransactions(self._aborted),
            self._survey.active(rules.now_ms - rules.producer_expiration_ms),
            now_ms=rules.now_ms,
            delete_retention_ms=rules.delete_retention_ms,
        )
        before, after, tombstones, size = 0, 0, 0, 0
        for entry in self._entries():
            before += _count(entry.data)
            data, _ = kept.judge(entry)
            if data is None and entry.last_offset + 1 >= self._survey.end:
                data = _end_of_log(entry)
            if data is None:
                continue
            after += _count(data)
            tombstones += _tombstones(data)
            size += len(data)
            if output is not None:
                output.append(data)
        self.figures |= {"records": before, "records_after": after}
        self.figures |= {"tombstones": tombstones, "bytes_after": size}

    def _entries(self) -> Iterator[Entry]:
        """Every entry of the log, verified; one cut at its very end is no part of it."""
        for file in self._files:
            with _mapped(file) as data:
                walk = Walk(data, base_offset=file.base_offset)
                yield from walk
            if walk.stop is not Stop.END and not (walk.stop is Stop.PARTIAL and file.is_last):
                raise _Unreadable(f"{file.path} at byte {walk.valid_bytes}: {walk.reason}")


def _mapped(file: SegmentFile) -> Any:
    """The bytes of a segment as they were when the job was planned, in a ``with``."""
    if not file.size:
        return memoryview(b"")
    with Path(file.path).open("rb") as opened:
        return mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ)


def _aborted_of(file: SegmentFile) -> list[AbortedTransaction]:
    try:  # not Path.is_file(): since Python 3.14 what cannot be looked at is no file
        return parse_aborted(Path(file.path).with_suffix(".txnindex").read_bytes())
    except FileNotFoundError:
        return []


def _end_of_log(entry: Entry) -> bytes | bytearray:
    """What stays of the last entry in any case, so that no offset is given twice."""
    return entry.data if entry.magic < 2 else emptied(batch.header(entry.data))


def _count(data: bytes | bytearray) -> int:
    """Records of data in an entry; markers are none."""
    if batch.magic(data) < 2:
        return sum(1 for _ in batch.records(data))
    return 0 if batch.is_control(data) else batch.record_count(data)


def _tombstones(data: bytes | bytearray) -> int:
    if batch.magic(data) < 2:
        return sum(
            record.key is not None and record.value is None for record in batch.records(data)
        )
    head = batch.header(data)
    if head.attributes & CONTROL or not head.record_count:
        return 0
    found = fields_of(section_of(bytes(data), head), head.record_count)
    return sum(not field.has_value for field in found)
