"""Damaged records that a load of an offsets partition skipped, and which groups they may concern.

A group whose commits may have been in there is not told "no offset", nor an older one: unknown is
not none. One whose metadata may have been in there begins anew, without members. Whom the damage
may concern is read out of the damaged bytes, as far as their structure is whole; else it is
everybody. Why that is safe: docs/decisions/0009.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages.offset_fetch import Topic
from barnabas.protocol.offsets_topic import (
    GroupKey,
    OffsetKey,
    group_key,
    offset_key,
    parse_key,
    parse_offset_value,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import TRANSACTIONAL

from .offsets import Commit, TopicPartition

NAMED_MOST: Final = 5
"""So many groups are named in the log."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets of a log that cannot be read."""

    first_offset: int
    next_offset: int
    """The first one behind it."""
    data: bytes
    """What lies there now; empty when that is not known, or is too much to be looked at."""


class DamagedRecords:
    """Every :class:`Damage` that one load went past."""

    __slots__ = (
        "_concerns_all",
        "_groups_with_metadata",
        "_groups_with_offsets",
        "_known",
        "_metadata_known",
        "next_offset",
    )

    def __init__(self) -> None:
        self.next_offset = 0
        """What was recorded here or later is newer than all that was lost."""
        self._groups_with_offsets: set[bytes] = set()
        """Groups whose offsets were in there, as their keys say now."""
        self._groups_with_metadata: set[bytes] = set()
        """Groups whose metadata was."""
        self._metadata_known: set[str] = set()
        """Groups whose metadata is known from later on."""
        self._known: set[bytes] = set()
        self._concerns_all = False

    def add(self, damage: Damage) -> None:
        """One more; they come in the order of the log."""
        self.next_offset = damage.next_offset
        try:
            names, metadata = _groups_in(damage.data)
        except (CorruptRecords, CorruptRequest, IndexError, ValueError):
            self._concerns_all = True
            return
        self._groups_with_offsets |= names
        self._groups_with_metadata |= metadata

    def loaded(self, groups: Collection[str], described: Iterable[str] = ()) -> None:
        """These groups are known from elsewhere in the log; the metadata of some from behind it."""
        both = self._groups_with_offsets | self._groups_with_metadata
        self._known = {name for name in both if name.decode() in groups}
        self._metadata_known.update(described)

    def mark_metadata_known(self, group_id: str) -> None:
        """What this group is does not depend on the damage any more."""
        self._metadata_known.add(group_id)

    def lacks_metadata(self, group_id: str) -> bool:
        """Whether metadata of this group may have been in there, and nothing newer is known."""
        return group_id not in self._metadata_known and self._may_be_among(
            group_id, self._groups_with_metadata
        )

    def may_concern(self, group_id: str) -> bool:
        """Whether an offset of this group may have been in there.

        One byte of a name may be wrong; a name that nothing else in the log has may be wrong
        everywhere, but not in its length: the structure around it is whole.
        """
        return self._may_be_among(group_id, self._groups_with_offsets)

    def _may_be_among(self, group_id: str, names: Iterable[bytes]) -> bool:
        if self._concerns_all:
            return True
        name = group_id.encode()
        return any(
            len(lost) == len(name) and (lost not in self._known or _is_near(lost, name))
            for lost in names
        )

    def withholds(
        self,
        group_id: str,
        topics: Sequence[Topic] | None,
        committed: Mapping[TopicPartition, Commit],
    ) -> bool:
        """Whether not all that is asked for is known; ``topics`` None asks for everything."""
        if not self.may_concern(group_id):
            return False
        if topics is None:
            return True
        for topic in topics:
            for index in topic.partition_indexes:
                commit = committed.get((topic.name, index))
                if commit is None or commit.record_offset < self.next_offset:
                    return True
        return False

    def __str__(self) -> str:
        if self._concerns_all:
            return "all that committed nothing since"
        names = sorted(
            name.decode() for name in self._groups_with_offsets | self._groups_with_metadata
        )
        return ",".join(names[:NAMED_MOST]) + (",..." if len(names) > NAMED_MOST else "")


def _groups_in(data: bytes) -> tuple[set[bytes], set[bytes]]:
    """The groups whose offsets, and whose metadata, are in damaged batches.

    Raises when that cannot be told.
    """
    names: set[bytes] = set()
    metadata: set[bytes] = set()
    end = 0
    for position, size in batch.iterate(data):
        end = position + size
        if batch.magic(data, position) != 2 or batch.attributes(data, position) & ~TRANSACTIONAL:
            raise CorruptRecords("another format, compressed, or a marker")
        for record in batch.records(data, position):
            about = _subject(record.key, record.value)
            found = metadata if isinstance(about, GroupKey) else names
            found.add(about.group.encode())
    if end != len(data) or not data:
        raise CorruptRecords("no whole batches")
    return names, metadata


def _subject(key: bytes | None, value: bytes | None) -> GroupKey | OffsetKey:
    """What a record is about. Raises for one that nobody can have written like that."""
    about = parse_key(key or b"")
    if isinstance(about, GroupKey) and group_key(about.group) == key:
        return about
    if not isinstance(about, OffsetKey) or offset_key(*about[1:])[2:] != (key or b"")[2:]:
        raise CorruptRecords("a key that nobody writes")
    if value is not None:
        parse_offset_value(value)
    return about


def _is_near(one: bytes, other: bytes) -> bool:
    return sum(left != right for left, right in zip(one, other, strict=True)) <= 1
