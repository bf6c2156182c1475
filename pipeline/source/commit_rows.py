"""The records of ``__consumer_offsets`` decoded into columns: offset commits, or groups.

Keys repeat from commit to commit, so each is parsed once; values are read in `commit_values.py`.
Source: docs/spec/coordinator.md §2; docs/spec/pipeline.md §1.4 and §4.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import (
    GroupKey,
    OffsetKey,
    UnknownKey,
    parse_group_value,
    parse_key,
)
from barnabas.protocol.records.columns import Numbers

from .commit_values import CommitValues, read_values
from .layout import Layout
from .rows import Rows, constant, times

log = logging.getLogger(__name__)

_KEYS_MAX: Final = 200_000
_NONE: Final = -1
_NOBODY: Final = OffsetKey(_NONE, "", "", _NONE)
"""Stands where a key is no offset's; no row has it."""

Key = OffsetKey | GroupKey | UnknownKey | None


class CommitRows:
    """Offset commits and their tombstones; records about groups are left out."""

    needs_records = True

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._schema = layout.arrow
        self._known: dict[bytes | None, Key] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrow schemas are made anew where it is unpickled."""
        return CommitRows, (self.layout,)

    def build(self, topic_partition: TopicPartition, rows: Rows) -> pa.RecordBatch:
        """One row a commit or tombstone. A record that cannot be read is left out, with a word."""
        keys = rows.keys.dictionary_encode()
        owners = [self._known.get(key) or self._parsed(key) for key in keys.dictionary.to_pylist()]
        numbers = np.asarray(keys.indices.fill_null(len(owners)))
        is_offset = np.array([type(owner) is OffsetKey for owner in owners] + [False])
        commits = read_values(rows.values, is_offset[numbers])
        for index, problem in commits.problems.items():
            _complain(topic_partition, rows.offsets[index], problem)
        is_read = is_offset[numbers]
        is_read[list(commits.problems)] = False
        kept = np.flatnonzero(is_read)
        offset_keys = [owner if type(owner) is OffsetKey else _NOBODY for owner in owners]
        return self._batch(
            topic_partition, rows, _Owners(offset_keys, numbers[kept]), commits, kept
        )

    def _batch(
        self,
        topic_partition: TopicPartition,
        rows: Rows,
        owners: _Owners,
        commits: CommitValues,
        kept: Numbers,
    ) -> pa.RecordBatch:
        is_gone = commits.is_gone[kept]
        columns = {
            "group": lambda: owners.column("group", pa.string()),
            "topic": lambda: owners.column("topic", pa.string()),
            "partition": lambda: owners.column("partition", pa.int32()),
            "offset": lambda: pa.array(commits.offsets[kept], mask=is_gone),
            "leader_epoch": lambda: _given(commits.epochs[kept]).cast(pa.int32()),
            "metadata": lambda: _notes(commits, kept),
            "commit_ts": lambda: times(pa.array(commits.stamps[kept], mask=is_gone)),
            "expire_ts": lambda: times(_given(commits.expiries[kept])),
            "is_tombstone": lambda: pa.array(is_gone),
            **_source_columns(topic_partition, rows, kept),
        }
        made = [columns[name]() for name in self.layout.names]
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _parsed(self, key: bytes | None) -> Key:
        """What a key that is not known yet says; it is known from now on."""
        if key is None:
            return None
        found = _key_of(key)
        if len(self._known) >= _KEYS_MAX:
            self._known.clear()
        self._known[key] = found
        return found


class GroupRows:
    """The metadata of groups and their tombstones; offset commits are left out."""

    needs_records = True

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._schema = layout.arrow

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrow schemas are made anew where it is unpickled."""
        return GroupRows, (self.layout,)

    def build(self, topic_partition: TopicPartition, rows: Rows) -> pa.RecordBatch:
        """One row each time a group was written. What cannot be read is left out, with a word."""
        found: dict[str, list[Any]] = {name: [] for name in self.layout.names}
        kept: list[int] = []
        for index, (key, value) in enumerate(rows.pairs()):
            parsed = None if key is None or key[:2] != b"\0\2" else _key_of(key)
            if not isinstance(parsed, GroupKey):
                continue
            try:
                row = _group_row(parsed.group, value)
            except CorruptRequest as error:
                _complain(topic_partition, rows.offsets[index], error)
                continue
            kept.append(index)
            for name in found:
                found[name].append(row.get(name))
        source = _source_columns(topic_partition, rows, kept)
        columns = []
        for field in self._schema:
            if field.name in source:
                columns.append(source[field.name]())
            elif field.name == "state_ts":
                columns.append(times(found[field.name]))
            else:
                columns.append(pa.array(found[field.name], field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


@dataclass(frozen=True, slots=True)
class _Owners:
    """Whose commits they are: keys, and for each row which of them."""

    keys: Sequence[OffsetKey]
    rows: Numbers

    def column(self, field: str, kind: pa.DataType) -> pa.Array:
        values = pa.array([getattr(key, field) for key in self.keys], kind)
        return values.take(pa.array(self.rows))


def _given(numbers: Numbers) -> pa.Array:
    return pa.array(numbers, mask=numbers == _NONE)


def _notes(commits: CommitValues, kept: Numbers) -> pa.Array:
    notes = constant("", pa.string(), len(kept))
    if commits.notes:
        notes = pa.array([commits.notes.get(index, "") for index in kept.tolist()], pa.string())
    is_gone = commits.is_gone[kept]
    return pc.if_else(is_gone, pa.scalar(None, pa.string()), notes) if is_gone.any() else notes


def _key_of(key: bytes) -> Key:
    try:
        return parse_key(key)
    except CorruptRequest as error:
        log.warning("skipped a record of __consumer_offsets error=%s", error)
        return UnknownKey(_NONE)


def _group_row(group: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"group": group, "is_tombstone": True}
    found = parse_group_value(value)
    stamp = found.current_state_timestamp
    return {
        "group": group,
        "protocol_type": found.protocol_type,
        "generation": found.generation,
        "protocol": found.protocol,
        "leader": found.leader,
        "state_ts": None if stamp == _NONE else stamp,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
            }
            for member in found.members
        ],
        "is_tombstone": False,
    }


def _source_columns(
    topic_partition: TopicPartition, rows: Rows, kept: Numbers | Sequence[int]
) -> dict[str, Any]:
    return {
        "source_partition": lambda: constant(topic_partition.partition, pa.int32(), len(kept)),
        "source_offset": lambda: pa.array(rows.offsets[kept]),
        "source_timestamp": lambda: times(rows.timestamps[kept]),
    }


def _complain(topic_partition: TopicPartition, offset: int, error: Exception) -> None:
    log.warning(
        "skipped a record topic=%s partition=%s offset=%s error=%s",
        topic_partition.topic,
        topic_partition.partition,
        offset,
        error,
    )
