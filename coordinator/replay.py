"""Records of an offsets partition folded into groups and offsets: the last one in the log wins.

Source: coordinator.md section 3.4, steps 4 and 5. Pure: the loader feeds it, and so could a
standby or a tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.protocol.offsets_topic import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from barnabas.protocol.records.control import Marker
from barnabas.protocol.records.failures import CorruptRecords

from .group import Group
from .group_record import group_of
from .offsets import Commit, Offsets, TopicPartition
from .ownership import Term

NO_PRODUCER: Final = -1


class Replay:
    """What the records so far amount to.

    A value that cannot be read raises CorruptRequest or CorruptRecords: then nothing of it may be
    served, for a cache with a hole would send consumers back to an old place.
    """

    def __init__(self) -> None:
        self._groups: dict[str, GroupRecord] = {}
        self._offsets: dict[str, Offsets] = {}
        self._open_groups: dict[int, dict[str, None]] = {}

    def apply(
        self,
        record_offset: int,
        key: bytes | None,
        value: bytes | None,
        *,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        """One record; ``producer_id`` when it is part of a transaction."""
        if key is None:
            raise CorruptRecords(f"a record without a key at offset {record_offset}")
        about = parse_key(key)
        if isinstance(about, OffsetKey):
            self._apply_offset(record_offset, about, value, producer_id)
        elif isinstance(about, GroupKey):
            self._apply_group(about.group, value)
        # keys of later versions belong to other kinds of groups: not ours to read

    def end_transaction(self, producer_id: int, marker: Marker) -> None:
        """A producer's transaction ended: what it staged counts from here on, or never did."""
        for group_id in self._open_groups.pop(producer_id, ()):
            self._offsets[group_id].end_transaction(
                producer_id, is_committed=marker is Marker.COMMIT
            )

    def groups(self, term: Term, now_ms: int) -> Iterator[Group]:
        """Every group found, one by one, each with all its offsets.

        A group of which only offsets are known is Empty since ``now_ms``. That its metadata was
        removed before is legitimate: the name was used again, for offsets only (KAFKA-4704).
        """
        for group_id, record in self._groups.items():
            group = group_of(group_id, record, term)
            offsets = self._offsets.pop(group_id, None)
            if offsets is not None:
                group.offsets = offsets
            yield group
        for group_id, offsets in self._offsets.items():
            if not offsets.is_empty:
                group = Group(group_id, term, since_ms=now_ms)
                group.offsets = offsets
                yield group

    def _apply_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = parse_group_value(value)

    def _apply_offset(
        self, record_offset: int, key: OffsetKey, value: bytes | None, producer_id: int
    ) -> None:
        offsets = self._offsets.get(key.group)
        if offsets is None:
            offsets = self._offsets[key.group] = Offsets()
        partition = (key.topic, key.partition)
        if key.version == 0:
            self._note_old_key(offsets, partition, value)
        if producer_id == NO_PRODUCER:
            target = offsets.committed
        else:
            target = offsets.transactional.setdefault(producer_id, {})
            self._open_groups.setdefault(producer_id, {})[key.group] = None
        if value is None:
            target.pop(partition, None)
            if producer_id != NO_PRODUCER and not target:
                del offsets.transactional[producer_id]
            return
        record = parse_offset_value(value)
        target[partition] = Commit(
            record.offset,
            record.leader_epoch,
            record.metadata,
            record.commit_timestamp,
            record.expire_timestamp,
            record_offset,
        )

    @staticmethod
    def _note_old_key(offsets: Offsets, partition: TopicPartition, value: bytes | None) -> None:
        if value is None:
            offsets.old_keys.discard(partition)
        else:
            offsets.old_keys.add(partition)
