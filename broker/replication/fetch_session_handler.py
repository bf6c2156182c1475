"""A follower's side of an incremental fetch session: only what changed is named again.

Both sides keep the same table of partitions and positions. A request changes it and carries the
next epoch; a leader that misses one refuses the rest (INVALID_FETCH_SESSION_EPOCH) instead of
serving from another table than the follower thinks of. So after any failure whose outcome is not
known the session begins anew, with epoch 0 and everything named.

Source: KIP-227 (FetchSessionHandler); docs/spec/cluster.md §3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.protocol.messages.fetch import ForgottenTopic, Partition, Topic

FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
FULL_LOOK_S: Final = 0.25
"""Partitions that no append or answer touched are looked at so often, by leader and follower.

What moves without an append announces itself to nobody: a high watermark, a log start by retention.
"""
FULL_LOOK_MOST_S: Final = 1.0
LOOKS_PER_S: Final = 4000
"""Of a session with more partitions than this many looks can see in FULL_LOOK_S each is seen less
often: at rest nothing else costs a node of very many partitions as much as these looks."""

Key = tuple[str, int]


def full_look_s(partitions: int) -> float:
    """After how many seconds a session of so many partitions is looked at as a whole again."""
    return min(max(FULL_LOOK_S, partitions / LOOKS_PER_S), FULL_LOOK_MOST_S)


class FetchPosition(NamedTuple):
    """Where to fetch in one partition, as the leader is told."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    bytes_max: int


class SessionRequest(NamedTuple):
    """What one request says of the session."""

    session_id: int
    session_epoch: int
    topics: list[Topic]
    forgotten: list[ForgottenTopic]


class FetchSessionHandler:
    """What one leader remembers of this follower; :meth:`reset` it after any failure."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = FIRST_EPOCH
        self._sent: dict[Key, FetchPosition] = {}

    def reset(self) -> None:
        """Name everything again next time."""
        self._epoch = FIRST_EPOCH
        self._sent = {}

    def next_request(self, wanted: Mapping[Key, FetchPosition]) -> SessionRequest:
        """The request after which the leader knows of exactly ``wanted``."""
        changed = {key: at for key, at in wanted.items() if self._sent.get(key) != at}
        gone = [key for key in self._sent if key not in wanted]
        self._sent = dict(wanted)
        return SessionRequest(self._id, self._epoch, _topics(changed), _forgotten(gone))

    def next_request_for(self, moved: Mapping[Key, FetchPosition]) -> SessionRequest:
        """The same where at most ``moved`` has changed since: the rest is not even compared."""
        sent = self._sent
        changed = {key: at for key, at in moved.items() if sent.get(key) != at}
        sent.update(changed)
        return SessionRequest(self._id, self._epoch, _topics(changed), [])

    @property
    def is_incremental(self) -> bool:
        """Whether the leader remembers what it was told."""
        return self._epoch != FIRST_EPOCH

    def handle_response(self, session_id: int) -> None:
        """The leader took what was sent; id 0 when it will remember nothing."""
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
