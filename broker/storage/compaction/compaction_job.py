"""What a compaction is asked to do and what it answers, in a form that crosses a pipe.

Source: docs/spec/log.md §5.2 to §5.6.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.broker.storage.segment.transaction_index import AbortedTransaction
from barnabas.protocol.records.compaction.compaction_filter import ActiveProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """One pass over the closed segments of one log."""

    directory: Path
    bases: Sequence[int]
    """Base offsets of the segments to read, from the first of the log on."""
    sizes: Sequence[int]
    """Bytes of each."""
    end: int
    """Where the last of them ends: the base offset of the segment after it."""
    first_dirty: int
    """What lies below was compacted before."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    map_load_factor: float
    buffer_bytes: int
    bytes_per_second: float
    producers: Sequence[ActiveProducer] = ()
    aborted: Sequence[AbortedTransaction] = ()
    """Every aborted transaction that reaches below ``end``."""

    def to_json(self) -> str:
        """One line of text."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps({**fields, "directory": str(self.directory)})

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CompactionJob:
        """The job that :meth:`to_json` wrote, once parsed."""
        return cls(
            **{
                **fields,
                "directory": Path(fields["directory"]),
                "producers": [ActiveProducer(*producer) for producer in fields["producers"]],
                "aborted": [AbortedTransaction(*transaction) for transaction in fields["aborted"]],
            }
        )


class Rewritten(NamedTuple):
    """A run of segments has a successor, complete and durable as ``.cleaned`` files."""

    old: Sequence[int]
    """Base offsets of the segments it was made from: neighbours."""
    new: Sequence[tuple[int, int]]
    """Base offset and size of each segment that takes their place; at least one."""


class Compacted(NamedTuple):
    """A whole pass."""

    clean_upto: int
    """Everything below is compacted now."""
    bytes_read: int
    bytes_written: int
    records_dropped: int


class Worked(NamedTuple):
    """A step of a pass: so many bytes were read and written since the last."""

    byte_count: int
