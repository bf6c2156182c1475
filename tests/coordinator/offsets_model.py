"""What an offsets partition's log amounts to, folded in the plainest way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.coordinator.offsets import Offsets
from barnabas.coordinator.replay import Replay
from barnabas.protocol.offsets_topic import (
    GroupKey,
    OffsetKey,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker

Place = tuple[str, str, int]
Value = tuple[int, int]
"""Committed offset, and the offset of its record."""


@dataclass
class Folded:
    """Offsets, those in open transactions, generations of groups, places under an old key."""

    offsets: dict[Place, Value] = field(default_factory=dict)
    staged: dict[int, dict[Place, Value]] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    old: set[Place] = field(default_factory=set)


def folded(batches: Iterable[bytes | bytearray], until: int) -> Folded:
    """Of all batches that end at ``until`` or before."""
    found = Folded()
    for data in batches:
        if batch.next_offset(data) > until:
            break
        producer = batch.producer_id(data) if batch.is_transactional(data) else -1
        for record in batch.records(data):
            if batch.is_control(data):
                staged = found.staged.pop(producer, {})
                if parse_marker(record.key) is Marker.COMMIT:
                    for place, value in staged.items():
                        if place not in found.offsets or found.offsets[place][1] < value[1]:
                            found.offsets[place] = value
            else:
                assert record.key is not None
                _fold(found, producer, record.offset, record.key, record.value)
    found.staged = {producer: staged for producer, staged in found.staged.items() if staged}
    return found


def _fold(found: Folded, producer: int, offset: int, key: bytes, value: bytes | None) -> None:
    about = parse_key(key)
    if isinstance(about, GroupKey):
        found.groups.pop(about.group, None)
        if value is not None:
            found.groups[about.group] = parse_group_value(value).generation
    elif isinstance(about, OffsetKey):
        place = (about.group, about.topic, about.partition)
        target = found.offsets if producer < 0 else found.staged.setdefault(producer, {})
        target.pop(place, None)
        if value is None and producer < 0:
            for staged in found.staged.values():
                staged.pop(place, None)  # docs/spec/transactions.md §4.6
        if about.version == 0:
            found.old.discard(place)
        if value is not None:
            target[place] = (parse_offset_value(value).offset, offset)
            if about.version == 0:
                found.old.add(place)


def content(replay: Replay) -> Folded:
    """The same of what the shipped code made of a log."""
    for offsets in replay.offsets.values():
        assert not offsets.is_empty or offsets.old_keys, "a group without anything stays behind"
    found = content_of(replay.offsets)
    found.groups = {group: record.generation for group, record in replay.records.items()}
    return found


def content_of(groups: Mapping[str, Offsets]) -> Folded:
    """The same of offsets by group, as a load has made them or as they are served."""
    found = Folded()
    for group, offsets in groups.items():
        _check_staged(offsets)
        for (topic, index), commit in offsets.committed.items():
            found.offsets[group, topic, index] = (commit.offset, commit.record_offset)
        for producer, staged in offsets.transactional.items():
            for (topic, index), commit in staged.items():
                places = found.staged.setdefault(producer, {})
                places[group, topic, index] = (commit.offset, commit.record_offset)
        found.old.update((group, *partition) for partition in offsets.old_keys)
    return found


def _check_staged(offsets: Offsets) -> None:
    """That a partition is in a transaction is known without a look at each producer."""
    staged = {partition for one in offsets.transactional.values() for partition in one}
    known = staged | offsets.committed.keys()
    assert {found for found in known if offsets.is_in_transaction(found)} == staged
    assert offsets.partitions() == staged | offsets.committed.keys() | offsets.pending.keys()
