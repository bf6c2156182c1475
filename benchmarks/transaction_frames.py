"""Requests of transactional producers written out by hand, and the codes in their answers.

Source: Kafka 3.9's AddPartitionsToTxn v3, AddOffsetsToTxn v3, EndTxn v3, TxnOffsetCommit v3,
InitProducerId v4, Produce v11, Fetch v4 and ListOffsets v2: what a client of Java 3.9 sends, but
for the last two. Requests have correlation id 0. Answers are given without their length.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from benchmarks.frames import compact, compact_count, flexible, plain, text

PRODUCE, FETCH, LIST_OFFSETS, FIND_COORDINATOR, INIT_PRODUCER_ID = 0, 1, 2, 10, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28

NONE: Final = 0
CONCURRENT_TRANSACTIONS: Final = 51
MIXED: Final = -2
"""Stands for several codes in one answer, or for an answer of another length than success has."""
FETCH_BYTES: Final = 1 << 20
APPEND_TIMEOUT_MS: Final = 30_000

_TAGS = b"\x00"
_TRANSACTIONAL = 0x10
_HEAD_BYTES = 5
"""Of a flexible answer: correlation id, no tags."""
_ADDED_BYTES = 7
"""A partition in an answer of a coordinator: index, code, no tags."""
_PRODUCED_BYTES = 33
"""A partition in an answer to Produce: index, code, three numbers, no errors, no text, no tags."""


@dataclass(frozen=True, slots=True)
class Producer:
    """Who sends."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def _who(self) -> bytes:
        ids = struct.pack(">qh", self.producer_id, self.epoch)
        return compact(self.transactional_id) + ids

    def add_partitions(self, topic: str, partitions: Sequence[int]) -> bytes:
        """All of them in one request, as the Java client has it."""
        wanted = b"\x02" + compact(topic) + _indexes(partitions) + _TAGS
        return flexible(ADD_PARTITIONS_TO_TXN, 3, self._who + wanted + _TAGS)

    def add_offsets(self, group: str) -> bytes:
        """The group's offsets belong to the transaction."""
        return flexible(ADD_OFFSETS_TO_TXN, 3, self._who + compact(group) + _TAGS)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> bytes:
        """One offset, of a client that is no member of the group."""
        names = compact(self.transactional_id) + compact(group)
        ids = struct.pack(">qhi", self.producer_id, self.epoch, -1)
        nobody = compact("") + b"\x00"
        one = struct.pack(">iqi", partition, offset, -1) + b"\x01" + _TAGS  # metadata ""
        wanted = b"\x02" + compact(topic) + b"\x02" + one + _TAGS
        return flexible(TXN_OFFSET_COMMIT, 3, names + ids + nobody + wanted + _TAGS)

    def end(self) -> bytes:
        """Commit."""
        return flexible(END_TXN, 3, self._who + b"\x01" + _TAGS)

    def produce(self, topic: str, partitions: Sequence[int], batch: bytes) -> bytes:
        """The same batch to each partition, to be on every replica in sync."""
        records = compact_count(len(batch)) + batch + _TAGS
        each = b"".join(struct.pack(">i", index) + records for index in partitions)
        head = compact(self.transactional_id) + struct.pack(">hi", -1, APPEND_TIMEOUT_MS)
        wanted = b"\x02" + compact(topic) + compact_count(len(partitions)) + each + _TAGS
        return flexible(PRODUCE, 11, head + wanted + _TAGS)

    def batch(self, sequence: int, records: bytes, count: int) -> bytes:
        """A transactional batch of ``count`` records that :func:`records_of` made."""
        ids = (self.producer_id, self.epoch, sequence)
        return _batch(_TRANSACTIONAL, ids, records, count)


def init_producer_id(transactional_id: str, timeout_ms: int = 60_000) -> bytes:
    """A producer that begins anew."""
    body = compact(transactional_id) + struct.pack(">iqh", timeout_ms, -1, -1) + _TAGS
    return flexible(INIT_PRODUCER_ID, 4, body)


def initialised(answer: bytes) -> tuple[int, int, int]:
    """Code, producer id and epoch."""
    code, producer_id, epoch = struct.unpack_from(">hqh", answer, _HEAD_BYTES + 4)
    return code, producer_id, epoch


def plain_produce(topic: str, partition: int, records: bytes, count: int) -> bytes:
    """Records of no transaction, and of no producer id."""
    batch = _batch(0, (-1, -1, -1), records, count)
    head = b"\x00" + struct.pack(">hi", -1, APPEND_TIMEOUT_MS)
    one = struct.pack(">i", partition) + compact_count(len(batch)) + batch + _TAGS
    wanted = b"\x02" + compact(topic) + b"\x02" + one + _TAGS
    return flexible(PRODUCE, 11, head + wanted + _TAGS)


def records_of(values: Sequence[bytes]) -> bytes:
    """Records without keys, as a batch holds them."""
    found = []
    for number, value in enumerate(values):
        body = b"\x00\x00" + _varint(number) + _varint(-1) + _varint(len(value)) + value + b"\x00"
        found.append(_varint(len(body)) + body)
    return b"".join(found)


def added_code(answer: bytes, topic: str, partitions: int) -> int:
    """The code that all partitions have in an answer to AddPartitionsToTxn or TxnOffsetCommit."""
    size = _named_bytes(topic, partitions) + partitions * _ADDED_BYTES + 1
    if len(answer) != _HEAD_BYTES + 4 + size:
        return MIXED
    return _only_code(answer[-2 - partitions * _ADDED_BYTES : -2], _ADDED_BYTES)


def produced_code(answer: bytes, topic: str, partitions: int) -> int:
    """The code of all partitions in an answer to Produce."""
    size = _named_bytes(topic, partitions) + partitions * _PRODUCED_BYTES + 4 + 1
    if len(answer) != _HEAD_BYTES + size:
        return first_produced_code(answer) or MIXED
    return _only_code(answer[-6 - partitions * _PRODUCED_BYTES : -6], _PRODUCED_BYTES)


def first_produced_code(answer: bytes) -> int:
    """The code of the first partition in an answer to Produce."""
    name_bytes = answer[_HEAD_BYTES + 1]
    at = _HEAD_BYTES + 1 + name_bytes
    while answer[at] > 127:  # the number of partitions
        at += 1
    return int(struct.unpack_from(">h", answer, at + 1 + 4)[0])


def single_code(answer: bytes) -> int:
    """The code in an answer to EndTxn or AddOffsetsToTxn."""
    return int(struct.unpack_from(">h", answer, _HEAD_BYTES + 4)[0])


def find_transaction_coordinator(transactional_id: str) -> bytes:
    """FindCoordinator v1 of the type of transactions."""
    return plain(FIND_COORDINATOR, 1, text(transactional_id) + b"\x01")


def found_code(answer: bytes) -> int:
    """The code in an answer to :func:`find_transaction_coordinator`."""
    return int(struct.unpack_from(">h", answer, 8)[0])


def fetch(topic: str, partition: int, offset: int, wait_ms: int) -> bytes:
    """Committed records from ``offset`` on; waits as long for the first."""
    limits = struct.pack(">iiiib", -1, wait_ms, 1, FETCH_BYTES, 1)
    asked = struct.pack(">iiqi", 1, partition, offset, FETCH_BYTES)
    return plain(FETCH, 4, limits + struct.pack(">i", 1) + text(topic) + asked)


def fetched(answer: bytes) -> tuple[int, list[tuple[int, int, bytes]]]:
    """The code of the only partition; next offset, attributes and record bytes of each batch."""
    (name_bytes,) = struct.unpack_from(">h", answer, 12)
    at = 14 + name_bytes + 4 + 4
    (code,) = struct.unpack_from(">h", answer, at)
    (aborted,) = struct.unpack_from(">i", answer, at + 2 + 16)
    at += 2 + 16 + 4 + max(0, aborted) * 16
    (size,) = struct.unpack_from(">i", answer, at)
    at += 4
    end = at + size
    batches: list[tuple[int, int, bytes]] = []
    while at + 12 <= end:
        base, length = struct.unpack_from(">qi", answer, at)
        following = at + 12 + length
        if following > end:
            break
        attributes, last = struct.unpack_from(">hi", answer, at + 21)
        batches.append((base + last + 1, attributes, answer[at + 61 : following]))
        at = following
    return code, batches


def list_ends(topic: str, partitions: int) -> bytes:
    """Where each partition ends for readers of committed records."""
    each = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    asked = struct.pack(">ibi", -1, 1, 1) + text(topic) + struct.pack(">i", partitions) + each
    return plain(LIST_OFFSETS, 2, asked)


def listed_ends(answer: bytes, partitions: int) -> int | None:
    """The sum of all ends; None where a partition has none to tell."""
    entries = answer[-partitions * 22 :]
    found = list(struct.iter_unpack(">ihqq", entries))
    return None if any(code for _, code, _, _ in found) else sum(end for *_, end in found)


def _batch(attributes: int, ids: tuple[int, int, int], records: bytes, count: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    covered = struct.pack(">hiqqqhii", attributes, count - 1, now_ms, now_ms, *ids, count) + records
    head = struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered))
    return head + covered


def _varint(value: int) -> bytes:
    number, written = (value << 1) ^ (value >> 63), b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def _indexes(partitions: Sequence[int]) -> bytes:
    return compact_count(len(partitions)) + b"".join(
        struct.pack(">i", index) for index in partitions
    )


def _named_bytes(topic: str, partitions: int) -> int:
    """One topic around its partitions: both counts, the name, the tags."""
    return 1 + len(compact(topic)) + len(compact_count(partitions)) + 1


def _only_code(entries: bytes, size: int) -> int:
    high, low = entries[4::size], entries[5::size]
    if high.count(high[:1]) != len(high) or low.count(low[:1]) != len(low):
        return MIXED
    return int(struct.unpack(">h", high[:1] + low[:1])[0])
