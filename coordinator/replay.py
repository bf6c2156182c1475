"""Records of an offsets partition folded into groups and offsets: the last one in the log wins.

Source: docs/spec/coordinator.md §3.4, steps 4 and 5. Pure: it does not know where records come
from.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from struct import Struct, unpack
from typing import Final

from barnabas.protocol.consumer_group_records import (
    ConsumerGroupKey,
    RecordType,
    consumer_group_key,
    parse_consumer_group_key,
)
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    group_key,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.latest_by_key import Latest, gather, gather_short

from .consumer_groups import stored_group
from .consumer_groups.stored_group import Raw
from .group import Group
from .group_record import group_of
from .group_registry import GroupTerm
from .offsets import Commit, Offsets, TopicPartition, topic_partition

NO_PRODUCER: Final = -1
RECORDS_BETWEEN_LOOKS: Final = 32
"""After so many records whoever drives a fold may look at the clock."""
LATEST_MAX: Final = 200_000
"""Keys put by; some 50 MB."""
_KEYS_A_LOOK: Final = 4095
OLD_KEY: Final = b"\0\0"
"""How a key of version 0 begins."""
PARTITION_BYTES: Final = 4
"""So many bytes at the end of an offset's key are the partition."""
_PLAIN: Final = Struct(">hqihq")
"""An offset's value of version 3 without metadata: version, offset, epoch, 0, time."""
_PLAIN_VERSION: Final = 3
PLAIN_BYTES: Final = _PLAIN.size
_NO_EXPIRY: Final = -1
_INDEX: Final = Struct(">i").unpack
_Start = tuple[dict[TopicPartition, Commit], str]
"""Where the offsets of one group and topic go, and the topic."""


def is_offset_key(key: bytes) -> bool:
    """Whether it is an offset's of version 1, with the partition at its end."""
    try:
        about = parse_key(key)
    except CorruptRequest:
        return False
    if not isinstance(about, OffsetKey) or about.version != 1:
        return False
    return len(key) == 10 + len(about.group.encode()) + len(about.topic.encode())


def is_plain(value: bytes) -> bool:
    """Whether an offset's value is of version 3 and without metadata."""
    return len(value) == PLAIN_BYTES and value[:2] == b"\0\3" and value[14:16] == b"\0\0"


class Replay:
    """What the records so far amount to.

    A value that cannot be read raises CorruptRequest or CorruptRecords: then nothing of it may be
    served, for a cache with a hole would send consumers back to an old place. To fold the same
    batch again, whole, changes nothing: a fold may be left in the middle of one and gone on with.
    """

    def __init__(self) -> None:
        self.records: dict[str, GroupRecord] = {}
        """The last metadata of each group that has any."""
        self.offsets: dict[str, Offsets] = {}
        """By group; never one without anything in it."""
        self.count = 0
        """How many records were folded."""
        self.group_record_offsets: dict[str, int] | None = None
        """Where the last metadata, or its tombstone, of each group is; None while nobody asks."""
        self.open_groups: dict[int, set[str]] = {}
        """By producer id: the groups in which its open transaction staged offsets."""
        self.consumer_records: dict[str, Raw] = {}
        """The last records of each group of the new protocol (KIP-848), as they are."""
        self.record_offsets: dict[str, int] = {}
        """Where the records of ``records`` are: the later one of both kinds decides (C50)."""
        self._latest: Latest = {}
        self._ms = 0

    def defer_batch(
        self, data: batch.Buffer, position: int, floor: int
    ) -> Generator[None, None, None]:
        """As :meth:`fold`, but nothing shows before :meth:`apply_deferred`.

        Most records of a long log are replaced by later ones: only the last is ever looked into.
        """
        if (
            batch.is_transactional(data, position)
            or batch.is_control(data, position)
            # A tombstone drops what transactions staged before it. Of a key that is committed anew
            # behind its tombstone only the latter would be left.
            or self.open_groups
        ):
            yield from self.apply_deferred()
            yield from self.fold(data, position, floor)
            return
        yield from gather(self._latest, data, position, floor)
        self.count += max(0, batch.next_offset(data, position) - floor)
        if len(self._latest) > LATEST_MAX:
            yield from self.apply_deferred()

    def defer_short_batches(
        self, data: bytes, position: int, floor: int, until: int
    ) -> tuple[int, int]:
        """As :meth:`defer_batch` for short batches in a row, all that end at ``until`` or below.

        Returns the position of the first that is another's, and the offset that follows; with
        nothing done, ``position`` and ``floor``.
        """
        if len(self._latest) > LATEST_MAX or self.open_groups:
            return position, floor
        position, following = gather_short(self._latest, data, position, floor, until)
        self.count += following - floor
        return position, following

    def apply_deferred(self) -> Generator[None, None, None]:
        """Apply what :meth:`defer_batch` has put by."""
        latest = self._latest
        for number, key in enumerate(latest):
            if key is not None and key[:2] == OLD_KEY:
                # One offset may stand under an old key and a new one: then their order counts.
                newest_first = sorted(latest.items(), key=lambda item: -item[1][0])
                self._latest = latest = dict(newest_first)
                break
            if number & _KEYS_A_LOOK == _KEYS_A_LOOK:
                yield
        starts: dict[bytes, _Start] = {}
        count = 0
        while latest:
            key, (offset, value) = latest.popitem()
            count += 1
            if not count % RECORDS_BETWEEN_LOOKS:
                yield
            # The shape of nearly all: an offset without metadata, under a key that differs from
            # others of its group and topic in the partition only.
            if key is not None and value is not None and len(value) == _PLAIN.size:
                version, committed, epoch, metadata_bytes, time_ms = _PLAIN.unpack(value)
                is_plain = version == _PLAIN_VERSION and not metadata_bytes
                start = is_plain and (starts.get(key[:-4]) or self._start_of(key, starts))
                if start:
                    if time_ms == self._ms:
                        time_ms = self._ms  # one object for all commits of a batch, not one each
                    else:
                        self._ms = time_ms
                    commits, topic = start
                    partition = topic_partition(topic, _INDEX(key[-4:])[0])
                    commits[partition] = Commit(committed, epoch, "", time_ms, -1, offset)
                    continue
            self.apply(offset, key, value)
            if value is None:
                starts.clear()  # the last offset of a group may have gone, and its map with it

    def _start_of(self, key: bytes, starts: dict[bytes, _Start]) -> _Start | None:
        """Where an offset goes, noted for all keys that begin alike; None for other keys."""
        if not is_offset_key(key):
            return None
        about = parse_key(key)
        assert isinstance(about, OffsetKey)
        start = starts[key[:-4]] = self._offsets_of(about.group).committed, about.topic
        return start

    def fold(self, data: batch.Buffer, position: int, floor: int) -> Generator[None, None, None]:
        """Apply the records of the batch at ``position`` of ``data``, those below ``floor`` not."""
        is_control = batch.is_control(data, position)
        is_transactional = batch.is_transactional(data, position)
        producer_id = batch.producer_id(data, position) if is_transactional else NO_PRODUCER
        for record in batch.records(data, position):
            if record.offset < floor:
                continue
            if not is_control:
                self.apply(record.offset, record.key, record.value, producer_id=producer_id)
            elif (marker := parse_marker(record.key)) is not None:
                self.end_transaction(producer_id, marker, record.offset)
            self.count += 1
            if not self.count % RECORDS_BETWEEN_LOOKS:
                yield

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
            if value is None:
                self._remove_offset(about, producer_id)
            else:
                self._put_offset(record_offset, about, value, producer_id)
        elif isinstance(about, GroupKey):
            self._apply_group(record_offset, about.group, value)
        elif (consumer := parse_consumer_group_key(key)) is not None:
            self._apply_consumer(record_offset, consumer, value)
        # keys of later versions belong to other kinds of groups: not ours to read

    def _apply_group(self, record_offset: int, group_id: str, value: bytes | None) -> None:
        if self.group_record_offsets is not None:
            self.group_record_offsets[group_id] = record_offset
        if value is None:
            self.records.pop(group_id, None)
            self.record_offsets.pop(group_id, None)
        else:
            self.records[group_id] = parse_group_value(value)
            self.record_offsets[group_id] = record_offset

    def _apply_consumer(
        self, record_offset: int, key: ConsumerGroupKey, value: bytes | None
    ) -> None:
        """Kept as it is: members may come before their group, and targets before both (C48)."""
        if self.group_record_offsets is not None:
            known = self.group_record_offsets.get(key.group, -1)
            self.group_record_offsets[key.group] = max(known, record_offset)
        raw = self.consumer_records.setdefault(key.group, {})
        if value is None:
            raw.pop((key.type, key.name), None)
            if not raw:
                del self.consumer_records[key.group]
        else:
            raw[key.type, key.name] = record_offset, bytes(value)

    def end_transaction(self, producer_id: int, marker: Marker, marker_offset: int) -> None:
        """A producer's transaction ended: what it staged counts from here on, or never did."""
        for group_id in self.open_groups.pop(producer_id, ()):
            offsets = self.offsets.get(group_id)
            if offsets is not None:
                is_committed = marker is Marker.COMMIT
                offsets.end_transaction(
                    producer_id, is_committed=is_committed, marker_offset=marker_offset
                )
                self._prune(group_id, offsets)

    def groups(self, term: GroupTerm, now_ms: int) -> Iterator[Group]:
        """Every group found, one by one, each with all its offsets.

        A group of which only offsets are known is Empty since ``now_ms``. That its metadata was
        removed before is legitimate: the name was used again, for offsets only (KAFKA-4704).
        The groups share their offsets with this object, which is to be given up then.
        """
        for group_id, record in self.records.items():
            if self.is_consumer(group_id):
                continue
            group = group_of(group_id, record, term)
            group.stale_keys = self._consumer_keys(group_id)
            self._share_offsets(group)
            yield group
        for group_id, raw in self.consumer_records.items():
            if self.is_consumer(group_id):
                made = stored_group.group_of(group_id, raw, term, now_ms)
                if group_id in self.records:
                    made.foreign_keys = [(group_key(group_id), None)]
                self._share_offsets(made)
                yield made
        for group_id, offsets in self.offsets.items():
            is_known = group_id in self.records or group_id in self.consumer_records
            if not is_known and not offsets.is_empty:
                group = Group(group_id, term, since_ms=now_ms)
                group.offsets = offsets
                yield group

    def is_consumer(self, group_id: str) -> bool:
        """Whether the group is of the new protocol: its record is newer than a classic one (C50).

        A classic one without a record of such a group beside it counts, wherever it is.
        """
        raw = self.consumer_records.get(group_id)
        if raw is None:
            return False
        if group_id not in self.records:
            return True
        found = raw.get((RecordType.GROUP_METADATA, ""))
        return found is not None and found[0] > self.record_offsets.get(group_id, -1)

    def _consumer_keys(self, group_id: str) -> tuple[bytes, ...]:
        raw = self.consumer_records.get(group_id, {})
        return tuple(consumer_group_key(kind, group_id, name) for kind, name in raw)

    def _share_offsets(self, group: Group) -> None:
        offsets = self.offsets.get(group.group_id)
        if offsets is not None:
            group.offsets = offsets

    # -- from a snapshot -----------------------------------------------------------------------

    def defer(self, records: Iterable[tuple[bytes, tuple[int, bytes | None]]]) -> None:
        """Keys with offset and value, newer than what is here, for :meth:`apply_deferred`."""
        self._latest.update(records)

    def put_commits(
        self, start: bytes, record_offsets: Sequence[int], partitions: bytes, values: bytes
    ) -> None:
        """Offsets of one group and topic, newer than what is here.

        ``start`` is their key up to the partition; ``partitions`` and ``values`` are what follows
        in each key, and plain values. Raises CorruptRecords when they are not.
        """
        key = start + partitions[:PARTITION_BYTES]
        if not is_offset_key(key):
            raise CorruptRecords("a key of something else than offsets")
        about = parse_key(key)
        assert isinstance(about, OffsetKey)
        indexes = unpack(f">{len(record_offsets)}i", partitions)
        versions, offsets, epochs, sizes, times = zip(*_PLAIN.iter_unpack(values), strict=True)
        if set(versions) != {_PLAIN_VERSION} or any(sizes):
            raise CorruptRecords("a value of something else than an offset without metadata")
        if len(set(times)) == 1:
            times = (times[0],) * len(times)  # one object, not one for each
        commits = map(
            Commit, offsets, epochs, repeat(""), times, repeat(_NO_EXPIRY), record_offsets
        )
        partitions_of_topic = map(topic_partition, repeat(about.topic), indexes)
        self._offsets_of(about.group).committed.update(
            zip(partitions_of_topic, commits, strict=True)
        )

    def restore_offsets(
        self, group_id: str, producer_id: int, commits: Mapping[TopicPartition, Commit]
    ) -> None:
        """Offsets of one group as a snapshot has them; some of them may come in another call."""
        offsets = self._offsets_of(group_id)
        if producer_id == NO_PRODUCER:
            offsets.committed.update(commits)
        else:
            for partition, commit in commits.items():
                self._put_staged(offsets, producer_id, group_id, partition, commit)

    def restore_old_keys(self, group_id: str, partitions: list[TopicPartition]) -> None:
        """Partitions of one group that have a record under key version 0."""
        self._offsets_of(group_id).old_keys.update(partitions)

    # -- one offset ------------------------------------------------------------------------------

    def _put_offset(
        self, record_offset: int, key: OffsetKey, value: bytes, producer_id: int
    ) -> None:
        version, group_id, topic, index = key
        partition = topic_partition(topic, index)
        record = parse_offset_value(value)
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = Offsets()
        if version == 0:
            offsets.old_keys.add(partition)
        committed_ms = record.commit_timestamp
        if committed_ms == self._ms:
            committed_ms = self._ms  # one object for all commits of a batch, not one for each
        else:
            self._ms = committed_ms
        commit = Commit(
            record.offset,
            record.leader_epoch,
            record.metadata,
            committed_ms,
            record.expire_timestamp,
            record_offset,
        )
        if producer_id == NO_PRODUCER:
            offsets.committed[partition] = commit
        else:
            self._put_staged(offsets, producer_id, group_id, partition, commit)

    def _remove_offset(self, key: OffsetKey, producer_id: int) -> None:
        offsets = self.offsets.get(key.group)
        if offsets is None:
            return
        partition = (key.topic, key.partition)
        if key.version == 0:
            offsets.old_keys.discard(partition)
        if producer_id == NO_PRODUCER:
            # What transactions staged before it goes as well, or a marker would bring back what
            # was deleted (docs/spec/transactions.md §4.6); Kafka lets it.
            offsets.committed.pop(partition, None)
            offsets.remove_all_staged(partition)
        else:
            offsets.remove_staged(producer_id, partition)
        self._prune(key.group, offsets)

    def _offsets_of(self, group_id: str) -> Offsets:
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = Offsets()
        return offsets

    def _put_staged(
        self,
        offsets: Offsets,
        producer_id: int,
        group_id: str,
        partition: TopicPartition,
        commit: Commit,
    ) -> None:
        self.open_groups.setdefault(producer_id, set()).add(group_id)
        offsets.put_staged(producer_id, partition, commit)

    def _prune(self, group_id: str, offsets: Offsets) -> None:
        """A standby folds for months: groups that are gone must not stay behind."""
        if offsets.is_empty and not offsets.old_keys:
            del self.offsets[group_id]
