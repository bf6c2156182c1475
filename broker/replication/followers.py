"""What a leader knows of its followers: how far each is, and when it was last caught up.

A fetch of a follower says "I have everything below this offset"; nothing else counts. Being caught
up is a matter of time, not of records (KIP-16): a follower that is always a little behind a busy
leader, but has by now what the leader had at its last fetch, is in sync.

Source: docs/spec/cluster.md §3.1, §3.6 and §3.7. Pure: whoever asks says what time it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

UNKNOWN: Final = -1
NEVER: Final = -inf


GIVEN_MOST: Final = 5
"""A follower that asks once more for what it was given so often cannot use it, perhaps."""


@dataclass(slots=True)
class Follower:
    """One other replica, as its fetches showed it. Times are those of the loop, in seconds."""

    caught_up_at: float
    """The last moment at which it had all that the leader had."""
    log_end: int = UNKNOWN
    """It has everything below; unknown until it fetches from this leader."""
    log_start: int = UNKNOWN
    fetched_at: float = NEVER
    leader_end: int = UNKNOWN
    """The leader's log end at that fetch."""
    given_from: int = UNKNOWN
    """The offset from which it was given bytes last, and how often in a row."""
    given: int = 0


class Followers:
    """The other replicas of one partition by node id; empty where there is only one replica."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, Follower] = {}

    def begin(
        self, others: Iterable[int], in_sync: Collection[int], now: float, *, is_new_leader: bool
    ) -> None:
        """An epoch of leadership begins; who led already keeps what it knows about positions."""
        former = {} if is_new_leader else self._known
        self._known = {}
        for node in others:
            known = former.get(node) or Follower(NEVER)
            known.caught_up_at = now if node in in_sync else NEVER
            self._known[node] = known

    def end(self) -> None:
        """The partition is led elsewhere: nothing is known any more."""
        self._known = {}

    def get(self, node: int) -> Follower | None:
        """What is known of a replica; None when the node has none."""
        return self._known.get(node)

    def fetched(self, node: int, offset: int, log_start: int, leader_end: int, now: float) -> None:
        """``node`` asked for ``offset``, so it has everything below; the leader had ``leader_end``.

        It counts as caught up now when it asks for the end, and as of its last fetch when it has
        by now what was there then.
        """
        known = self._known[node]
        if offset >= leader_end:
            known.caught_up_at = max(known.caught_up_at, now)
        elif known.leader_end != UNKNOWN and offset >= known.leader_end:
            known.caught_up_at = max(known.caught_up_at, known.fetched_at)
        known.log_end = offset
        known.log_start = log_start
        known.fetched_at = now
        known.leader_end = leader_end

    def was_given(self, node: int, offset: int) -> bool:
        """Note that ``node`` is given bytes from ``offset`` on.

        True once for each offset, when it asks so often that the bytes may be damaged.
        """
        known = self._known.get(node)
        if known is None:
            return False
        if known.given_from != offset:
            known.given_from, known.given = offset, 0
        known.given += 1
        return known.given == GIVEN_MOST

    def with_all(self, least: int, since: float) -> set[int]:
        """Replicas that have everything below ``least`` and were heard at ``since`` or later."""
        return {
            node
            for node, known in self._known.items()
            if known.log_end >= least and known.fetched_at >= since
        }

    def lag_max(self, end: int) -> int:
        """How far the follower is behind ``end`` that is furthest behind, as they fetched last.

        One that was not heard in this leader's time counts as nothing: nobody knows.
        """
        ends = [known.log_end for known in self._known.values() if known.log_end != UNKNOWN]
        return max(0, end - min(ends)) if ends else 0

    def least_end(
        self, end: int, counted: Collection[int], recent: float, alive: Collection[int]
    ) -> int:
        """The first offset that ``end`` or a replica that counts does not cover.

        Those of ``counted`` count, and every live one that was caught up since ``recent``: the
        high watermark waits for whoever is about to join.
        """
        for node, known in self._known.items():
            if known.log_end < end and (
                node in counted or (known.caught_up_at >= recent and node in alive)
            ):
                end = known.log_end
        return end

    def least_start(self, alive: Collection[int]) -> int | None:
        """The least log start of the live replicas, UNKNOWN for one that was not heard of.

        None when there is none.
        """
        starts = [known.log_start for node, known in self._known.items() if node in alive]
        return min(starts, default=None)

    def lagging(self, of: Sequence[int], leader_end: int, since: float) -> list[int]:
        """Those of ``of`` that are behind and have not been caught up after ``since``."""
        return [
            node
            for node in of
            if (known := self._known.get(node)) is not None
            and known.log_end != leader_end
            and known.caught_up_at < since
        ]
