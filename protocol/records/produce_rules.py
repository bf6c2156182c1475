"""What a topic lets producers write, and what comes of a batch: a batch ready, or a refusal.

Apart from validate.py, which a wheel may have compiled: these go to the process of conversions and
back, and objects of compiled classes cannot be pickled. Source: docs/spec/log.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, Refused

from .header import INT64_MAX

RecordError = tuple[int, str]
"""Index of a record in its partition's request, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRules:
    """The settings of a topic that say what may be produced to it; defaults are Kafka's."""

    message_bytes_max: int = 1_048_588
    """``max.message.bytes``: the largest entry, compressed as it is, with its 12 bytes."""
    segment_bytes: int = 1 << 30
    compression: str = "producer"
    """``compression.type``: a name of codecs.NAMES, or "producer" to keep the client's."""
    compression_level: int | None = None
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    is_compacted: bool = False
    """Every record must have a key then."""


class Prepared(NamedTuple):
    """One batch at base offset 0, ready for ``assign``, and what its header says."""

    batch: bytearray | memoryview
    """The writable view that was given, where the batch could be made in place."""
    record_count: int
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic stamps its records."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_sequence: int = -1
    is_transactional: bool = False


class InvalidRecords(Refused):
    """Records that are not appended, none of them; ``record_errors`` may say which are bad."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)
