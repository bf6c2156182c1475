"""A follower's side of an incremental fetch session: only what changed is named again.

Source: KIP-227; docs/spec/cluster.md §3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.protocol.messages.fetch import ForgottenTopic, Partition, Topic

FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1

Key = tuple[str, int]


class FetchPosition(NamedTuple):
    """Where to fetch in one partition, as the leader is told."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    bytes_max: int


class NamedPartitions(NamedTuple):
    """What one request says."""

    session_id: int
    session_epoch: int
    topics: list[Topic]
    forgotten: list[ForgottenTopic]


class FetchSessionHandler:
    """What one leader remembers of this follower; begin anew after any failure."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = FIRST_EPOCH
        self._named: dict[Key, FetchPosition] = {}

    def reset(self) -> None:
        """Name everything again next time."""
        self._epoch = FIRST_EPOCH
        self._named = {}

    def name(self, wanted: Mapping[Key, FetchPosition]) -> NamedPartitions:
        """What to say so that the leader knows of exactly ``wanted``."""
        changed = {key: at for key, at in wanted.items() if self._named.get(key) != at}
        gone = [key for key in self._named if key not in wanted]
        self._named = dict(wanted)
        return NamedPartitions(self._id, self._epoch, _topics(changed), _forgotten(gone))

    def name_again(self, moved: Mapping[Key, FetchPosition]) -> NamedPartitions:
        """What to say where at most ``moved`` has changed since :meth:`name`."""
        named = self._named
        changed = {key: at for key, at in moved.items() if named.get(key) != at}
        named.update(changed)
        return NamedPartitions(self._id, self._epoch, _topics(changed), [])

    @property
    def is_incremental(self) -> bool:
        """Whether the leader remembers what it was told."""
        return self._epoch != FIRST_EPOCH

    def answered(self, session_id: int) -> None:
        """The leader took what was named; 0 when it will remember nothing."""
        if session_id == 0:
            self._id = 0
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1


def _topics(positions: Mapping[Key, FetchPosition]) -> list[Topic]:
    topics: dict[str, list[Partition]] = {}
    for (topic, index), at in positions.items():
        topics.setdefault(topic, []).append(
            Partition(
                partition=index,
                current_leader_epoch=at.leader_epoch,
                fetch_offset=at.offset,
                last_fetched_epoch=at.last_epoch,
                log_start_offset=at.log_start,
                partition_max_bytes=at.bytes_max,
            )
        )
    return [Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def _forgotten(gone: list[Key]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic, index in gone:
        topics.setdefault(topic, []).append(index)
    return [ForgottenTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
