"""Waits until moves are done, and says how far they are.

Source: docs/spec/console.md §7; docs/spec/cluster.md §2.12.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import OngoingMove, ongoing_moves, sizes_on
from barnabas.client.cluster import TopicPartition

from .placements import Placements, live_nodes, placements

LOOK_S: Final = 0.5
LOOK_MOST_S: Final = 5.0
"""Between two looks, at first and in long moves: each asks every node that copies."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the copies of one move are."""

    place: TopicPartition
    move: OngoingMove
    bytes_whole: int
    """All that is to be copied: as much as the leader has, for each new replica."""
    bytes_copied: int
    behind: int | None
    """Offsets that the slowest new replica lacks; None where nobody told."""

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "replicas": list(self.move.replicas),
            "adding": list(self.move.adding),
            "removing": list(self.move.removing),
            "bytes": self.bytes_whole,
            "bytes_copied": self.bytes_copied,
            "behind": self.behind,
        }


async def progress(
    admin: Admin, moves: Mapping[TopicPartition, OngoingMove], known: Placements | None = None
) -> list[Progress]:
    """How far each is; a node that cannot be asked counts as one that has nothing yet."""
    if not moves:
        return []
    known = known or await placements(admin)
    up = set(await live_nodes(admin))
    nodes = {node for move in moves.values() for node in move.replicas} & up
    sizes = await sizes_on(admin.cluster, nodes, list(moves))
    found = []
    for place, move in sorted(moves.items()):
        leader = known[place].leader if place in known else None
        of_leader = sizes.get(leader, {}).get(place) if leader is not None else None
        whole = of_leader.bytes if of_leader else 0
        new = [sizes.get(node, {}).get(place) for node in move.adding]
        copied = sum(min(one.bytes, whole) for one in new if one is not None)
        behind = [one.behind for one in new if one is not None]
        found.append(
            Progress(
                place, move, whole * len(move.adding), copied,
                max(behind) if behind and len(behind) == len(new) else None,
            )
        )  # fmt: skip
    return found


async def wait_for(
    admin: Admin,
    places: Collection[TopicPartition],
    tell: Callable[[str], None],
    *,
    wait_s: float | None = None,
) -> set[TopicPartition]:
    """Return when none of ``places`` is being moved any more, or after ``wait_s``: what is left.

    ``tell`` is given a line whenever something has changed.
    """
    deadline = None if wait_s is None else time.monotonic() + wait_s
    pause_s = LOOK_S
    said = ""
    while True:
        ongoing = await ongoing_moves(admin.cluster)
        left = {place: ongoing[place] for place in places if place in ongoing}
        if not left:
            return set()
        line = summary(len(places) - len(left), len(places), await progress(admin, left))
        if line != said:
            tell(line)
            said = line
        if deadline is not None and time.monotonic() >= deadline:
            return set(left)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.2, LOOK_MOST_S)


def summary(done: int, of: int, under_way: Collection[Progress]) -> str:
    """A line for people."""
    whole = sum(one.bytes_whole for one in under_way)
    copied = sum(one.bytes_copied for one in under_way)
    return (
        f"moved {done} of {of} partitions; of those under way {in_bytes(copied)} of "
        f"{in_bytes(whole)} are copied"
    )


def in_bytes(count: int) -> str:
    """A number of bytes for people, in KiB, MiB or GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(count)
