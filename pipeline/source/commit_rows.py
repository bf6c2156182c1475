"""The records of ``__consumer_offsets`` decoded into columns: offset commits, or groups.

Keys repeat from commit to commit, so each is parsed once; values of the versions that brokers
write today are unpacked here, any other by the protocol's own decoder. Source: coordinator.md
section 2; pipeline.md sections 9.4 and 12.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

import pyarrow as pa

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import (
    GroupKey,
    OffsetKey,
    UnknownKey,
    parse_group_value,
    parse_key,
    parse_offset_value,
)

from .layout import Layout
from .rows import Rows, constant, times

log = logging.getLogger(__name__)

_KEYS_MAX: Final = 200_000
_FRONT_3: Final = Struct(">hqih")
_LONG: Final = Struct(">q")
_VALUE_3: Final = 3
_NONE: Final = -1

Commit = tuple[int, int | None, str, int, int | None]
"""Offset, leader epoch, metadata, commit time, expiry; None for what was not given."""
_NO_COMMIT: Final = (None, None, None, None, None)

Key = OffsetKey | GroupKey | UnknownKey | None


class CommitRows:
    """Offset commits and their tombstones; records about groups are left out."""

    needs_records = True

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._schema = layout.arrow
        self._keys: dict[bytes | None, Key] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrow schemas are made anew where it is unpickled."""
        return CommitRows, (self.layout,)

    def build(self, place: TopicPartition, rows: Rows) -> pa.RecordBatch:
        """One row a commit or tombstone. A record that cannot be read is left out, with a word."""
        keys: list[OffsetKey] = []
        commits: list[Commit | tuple[None, ...]] = []
        kept: list[int] = []
        known = self._keys
        for index, (key, value) in enumerate(rows.pairs()):
            parsed = known.get(key) or self._parsed(key)
            if type(parsed) is not OffsetKey:
                continue
            try:
                commits.append(_NO_COMMIT if value is None else read_commit(value))
            except CorruptRequest as error:
                _complain(place, rows.offsets[index], error)
                continue
            keys.append(parsed)
            kept.append(index)
        return self._batch(place, rows, keys, commits, kept)

    def _batch(
        self,
        place: TopicPartition,
        rows: Rows,
        keys: Sequence[OffsetKey],
        commits: Sequence[Any],
        kept: list[int],
    ) -> pa.RecordBatch:
        _, groups, topics, partitions = zip(*keys, strict=True) if keys else ((),) * 4
        offsets, epochs, notes, stamps, expiries = (
            zip(*commits, strict=True) if commits else ((),) * 5
        )
        columns = {
            "group": lambda: pa.array(groups, pa.string()),
            "topic": lambda: pa.array(topics, pa.string()),
            "partition": lambda: pa.array(partitions, pa.int32()),
            "offset": lambda: pa.array(offsets, pa.int64()),
            "leader_epoch": lambda: pa.array(epochs, pa.int32()),
            "metadata": lambda: pa.array(notes, pa.string()),
            "commit_ts": lambda: times(stamps),
            "expire_ts": lambda: times(expiries),
            "is_tombstone": lambda: pa.array([each is None for each in offsets], pa.bool_()),
            **_source_columns(place, rows, kept),
        }
        made = [columns[name]() for name in self.layout.names]
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _parsed(self, key: bytes | None) -> Key:
        """What a key that is not known yet says; it is known from now on."""
        if key is None:
            return None
        found = _key_of(key)
        if len(self._keys) >= _KEYS_MAX:
            self._keys.clear()
        self._keys[key] = found
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

    def build(self, place: TopicPartition, rows: Rows) -> pa.RecordBatch:
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
                _complain(place, rows.offsets[index], error)
                continue
            kept.append(index)
            for name in found:
                found[name].append(row.get(name))
        source = _source_columns(place, rows, kept)
        columns = []
        for field in self._schema:
            if field.name in source:
                columns.append(source[field.name]())
            elif field.name == "state_ts":
                columns.append(times(found[field.name]))
            else:
                columns.append(pa.array(found[field.name], field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def read_commit(value: bytes) -> Commit:
    """A committed offset of any version; raises CorruptRequest."""
    try:
        version, offset, epoch, size = _FRONT_3.unpack_from(value)
        if version == _VALUE_3 and size >= 0:
            end = _FRONT_3.size + size
            note = value[_FRONT_3.size : end].decode() if size else ""
            (stamp,) = _LONG.unpack_from(value, end)
            return offset, None if epoch == _NONE else epoch, note, stamp, None
    except (struct_error, UnicodeDecodeError):
        pass  # the decoder below says what is wrong, or knows better
    found = parse_offset_value(value)
    return (
        found.offset,
        None if found.leader_epoch == _NONE else found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        None if found.expire_timestamp == _NONE else found.expire_timestamp,
    )


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


def _source_columns(place: TopicPartition, rows: Rows, kept: list[int]) -> dict[str, Any]:
    return {
        "source_partition": lambda: constant(place.partition, pa.int32(), len(kept)),
        "source_offset": lambda: pa.array(rows.offsets[kept]),
        "source_timestamp": lambda: times(rows.timestamps[kept]),
    }


def _complain(place: TopicPartition, offset: int, error: Exception) -> None:
    log.warning(
        "skipped a record topic=%s partition=%s offset=%s error=%s",
        place.topic,
        place.partition,
        offset,
        error,
    )
