"""The latest commits of groups, read from ``__consumer_offsets``, and log ends at their times.

Source: docs/spec/coordinator.md §2 (records of the offsets topic); docs/spec/users.md §3. A verdict
needs no collector that has been running for a while: the offsets topic remembers, as long as it is
not compacted, and a log knows by its timestamps where it ended at a time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import entries, fetch_batches
from barnabas.client.turns import Turns
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.offsets_topic import (
    GroupKey,
    OffsetKey,
    parse_key,
    parse_offset_value,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.walk import Entry

from .admin import Admin
from .log_ends import ask_leader
from .rebalance_history import (
    CLASSIC_KEYS,
    EPOCH_KEYS,
    EpochReplay,
    SeenGeneration,
    generation_of,
)

OFFSETS_TOPIC: Final = "__consumer_offsets"

_OFFSET_KEYS: Final = (b"\0\0", b"\0\1")
_MAGIC_WITH_PRODUCERS: Final = 2
_NO_PRODUCER: Final = -1
GENERATIONS_MAX: Final = 100
_PREFIXES_MAX: Final = 16
"""Of so few groups records are told apart by how their keys begin."""


class SeenCommit(NamedTuple):
    """A commit that the log still holds."""

    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class History:
    """What was found; ``since_ms`` is the time of the first record that was looked at.

    None when the log was read from its start, or holds nothing.
    """

    commits: dict[TopicPartition, deque[SeenCommit]] = field(default_factory=dict)
    since_ms: int | None = None
    generations: deque[SeenGeneration] = field(
        default_factory=lambda: deque(maxlen=GENERATIONS_MAX)
    )
    """The latest ones, oldest first; only where they were asked for."""


class _CommitReplay:
    """The commits of some groups, from batches in the order of the log."""

    def __init__(
        self, groups: Collection[str], most: int, *, with_generations: bool = False
    ) -> None:
        self.histories = {group: History() for group in groups}
        self._most = most
        names = [group.encode() for group in groups] if len(groups) <= _PREFIXES_MAX else []
        sizes = [len(name).to_bytes(2, "big") + name for name in names] or [b""]
        versions = (*_OFFSET_KEYS, *(CLASSIC_KEYS + EPOCH_KEYS if with_generations else ()))
        self._keys = tuple(version + rest for version in versions for rest in sizes)
        self._epochs, self._is_cut = EpochReplay(), False
        self._open: dict[int, list[Record]] = defaultdict(list)
        self._newest: dict[tuple[str, TopicPartition], int] = {}
        """Where the record lies of what counts for each offset, a tombstone's included."""

    def begin(self, since_ms: int) -> None:
        """What comes is not the whole log."""
        self._is_cut = True
        for history in self.histories.values():
            history.since_ms = since_ms

    def add(self, entry: Entry) -> None:
        """Take in one batch; what stands in a transaction counts when that was committed."""
        data = entry.data
        is_control = has_producers = False
        if entry.magic == _MAGIC_WITH_PRODUCERS:
            is_control, has_producers = batch.is_control(data), batch.is_transactional(data)
        producer = batch.producer_id(data) if has_producers else _NO_PRODUCER
        for record in batch.records(data):
            if is_control:
                self._end(producer, parse_marker(record.key))
            elif record.key is None or not record.key.startswith(self._keys):
                continue
            elif producer != _NO_PRODUCER:
                self._open[producer].append(record)
            else:
                self._apply(record)

    def _end(self, producer: int, marker: Marker | None) -> None:
        staged = self._open.pop(producer, ())
        if marker is Marker.COMMIT:
            for record in staged:
                self._apply(record)

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        if record.key.startswith(EPOCH_KEYS):
            target = self._epochs.take(record, is_whole=not self._is_cut)
            if target is not None:
                self._note(*target)
            return
        key = parse_key(record.key)
        if isinstance(key, GroupKey):
            self._note(key.group, generation_of(record))
            return
        assert isinstance(key, OffsetKey)
        history = self.histories.get(key.group)
        if history is None:
            return
        topic_partition = TopicPartition(key.topic, key.partition)
        # What a transaction commits was written before its marker: a plain commit or a tombstone
        # in between counts, as at the coordinator (docs/spec/transactions.md §4.4).
        place = key.group, topic_partition
        if record.offset < self._newest.get(place, -1):
            return
        self._newest[place] = record.offset
        if record.value is None:
            history.commits.pop(topic_partition, None)
            return
        value = parse_offset_value(record.value)
        seen = history.commits.setdefault(topic_partition, deque(maxlen=self._most))
        seen.append(SeenCommit(value.offset, value.commit_timestamp))

    def _note(self, group: str, found: SeenGeneration | None) -> None:
        """A group is written again when only its members' metadata changes: once counts."""
        history = self.histories.get(group)
        if history is None or found is None:
            return
        seen = history.generations
        last = seen[-1] if seen else None
        if last is None or (last.generation, last.members) != (found.generation, found.members):
            seen.append(found)


async def read_histories(
    admin: Admin,
    groups: Collection[str],
    *,
    commits: int,
    records_max: int = 100_000,
    with_generations: bool = False,
) -> dict[str, History]:
    """The latest ``commits`` of each partition of each group, oldest first.

    ``with_generations``: rebalances as well, as far as the log still has them.

    Found among the last ``records_max`` offsets of the groups' offsets partitions, each of which
    is read once. Raises KafkaError, TOPIC_AUTHORIZATION_FAILED for one who may not read them.
    """
    count = len((await admin.describe_topics([OFFSETS_TOPIC]))[0].partitions)
    by_offsets_partition: dict[TopicPartition, list[str]] = defaultdict(list)
    for group in groups:
        by_offsets_partition[TopicPartition(OFFSETS_TOPIC, group_partition(group, count))].append(
            group
        )
    starts, ends = await asyncio.gather(
        admin.start_offsets(by_offsets_partition), admin.end_offsets(by_offsets_partition)
    )
    found: dict[str, History] = {}
    for topic_partition, groups_of_partition in by_offsets_partition.items():
        start, end = starts.get(topic_partition, 0), ends.get(topic_partition, 0)
        replay = _CommitReplay(groups_of_partition, commits, with_generations=with_generations)
        await _read(
            admin.cluster, topic_partition, replay, start, max(start, end - records_max), end
        )
        found.update(replay.histories)
    return found


async def _read(
    cluster: Cluster,
    topic_partition: TopicPartition,
    replay: _CommitReplay,
    start: int,
    position: int,
    end: int,
) -> None:
    is_whole = position == start
    turns = Turns()
    while position < end:
        data = await fetch_batches(cluster, topic_partition, position)
        before = position
        for entry in entries(data, position):
            if not is_whole:
                replay.begin(entry.max_timestamp)
                is_whole = True
            replay.add(entry)
            position = entry.last_offset + 1
            await turns.pause()
        if position <= before:
            return  # the log was cut meanwhile


async def ends_at(
    cluster: Cluster, times: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, list[int | None]]:
    """Where each log ended at each of its ``times``, ms: the first offset stamped then or later.

    None where nothing was written since, or where nobody could be asked: the log ends there now.
    """
    found: dict[TopicPartition, list[int | None]] = {
        topic_partition: [None] * len(asked) for topic_partition, asked in times.items()
    }
    leaders = await cluster.leaders(times)
    rounds = max(map(len, times.values()), default=0)
    requests = []
    for turn in range(rounds):  # a request may name a partition only once
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for topic_partition, asked in times.items():
            if turn < len(asked) and topic_partition in leaders:
                by_leader[leaders[topic_partition]][topic_partition] = asked[turn]
        requests += [(turn, leader, asked_at) for leader, asked_at in by_leader.items()]
    answers = await asyncio.gather(*(_looked_up(cluster, *request[1:]) for request in requests))
    for (turn, _, _), offsets in zip(requests, answers, strict=True):
        for topic_partition, offset in offsets.items():
            found[topic_partition][turn] = offset
    return found


async def _looked_up(
    cluster: Cluster, leader: int, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = await ask_leader(cluster, leader, {place: max(0, at) for place, at in times.items()})
    return {place: result.offset for place, result in found.items() if result.offset >= 0}
