"""Has chosen replicas lead: they come first among the replicas, then the preferred is elected.

    AlterPartitionReassignments   the same replicas in another order; nothing is copied
    ElectLeaders (preferred)      the first one leads, which must be live and in sync
    Metadata                      read again until it says so

It is a planned move: the old leader hands over, and clients that asked it are told to look anew.
The order stays, so that no rebalancing by time gives leadership back. Any Kafka from 2.4 on does
it. Source: docs/spec/cluster.md §2.6; KIP-455, KIP-460.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import (
    alter_reassignments,
    elect,
    is_needless,
    ongoing_moves,
)
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError

from .placements import Placement, Placements, named, placements, rank

AT_ONCE: Final = 50
"""So many leaders change at a time: a moment's work for the nodes that take over."""
_LOOK_S: Final = 0.1

Tell = Callable[[str], None]
"""Where progress goes."""


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """One partition and who is to lead it."""

    before: Placement
    leader: int
    replicas: tuple[int, ...]
    """As they are to stand, the leader first."""

    @property
    def place(self) -> TopicPartition:
        """Which partition."""
        return self.before.place

    @property
    def is_needed(self) -> bool:
        """Whether anything is to change."""
        return self.leader != self.before.leader or self.replicas != self.before.replicas


def led_by(before: Placement, leader: int, *, last: int | None = None) -> LeaderMove:
    """``leader`` first, the others in their order, ``last`` behind them."""
    others = [node for node in before.replicas if node not in (leader, last)]
    end = [] if last is None or last == leader else [last]
    return LeaderMove(before, leader, (leader, *others, *end))


def refusal(before: Placement, leader: int) -> str | None:
    """Why a node cannot be given a partition now; None where it can."""
    if leader not in before.replicas:
        return f"node {leader} has no copy: {named(before.place)} is on {before.replicas}"
    if leader not in before.in_sync:
        return f"node {leader} is not in sync: it would lose records"
    return None


def in_safe_order(moves: Iterable[LeaderMove]) -> list[LeaderMove]:
    """Plain topics first, then who coordinates transactions, then who keeps offsets.

    Whatever goes wrong is seen where it costs least; groups move once, when all else is done.
    """
    return sorted(moves, key=lambda move: (rank(move.place.topic), move.place))


async def being_moved(admin: Admin, moves: Sequence[LeaderMove]) -> dict[TopicPartition, str]:
    """Those that must wait: a new order would call off the move that is under way."""
    ongoing = await ongoing_moves(admin.cluster)
    return {
        move.place: "its replicas are being moved: wait, or `barnabas partitions cancel` it"
        for move in moves
        if move.place in ongoing
    }


async def lead(admin: Admin, moves: Sequence[LeaderMove], tell: Tell) -> dict[TopicPartition, str]:
    """Do them in their order, some at a time; by partition, why one was not done.

    A pack that fails in part ends it: what is left is not tried. Raises KafkaError for a request
    that was refused as a whole before anything was changed.
    """
    errors: dict[TopicPartition, str] = {}
    left = iter(moves)
    done = 0
    while pack := list(islice(left, AT_ONCE)):
        try:
            errors |= await _lead(admin, pack)
        except KafkaError as error:
            if not done:
                raise
            errors |= {move.place: str(error) for move in pack}
        done += len(pack)
        tell(f"moved the leadership of {done - len(errors)} of {len(moves)} partitions")
        if errors:
            break
    for move in left:
        errors[move.place] = "not tried, since others before it failed"
    return errors


async def _lead(admin: Admin, pack: Sequence[LeaderMove]) -> dict[TopicPartition, str]:
    errors: dict[TopicPartition, str] = {}
    reordered = {
        move.place: move.replicas for move in pack if move.replicas != move.before.replicas
    }
    outcomes = await alter_reassignments(admin.cluster, reordered) if reordered else {}
    errors |= {place: str(error) for place, error in outcomes.items() if error is not None}
    elected = await elect(admin.cluster, [move.place for move in pack if move.place not in errors])
    errors |= {
        place: str(error)
        for place, error in elected.items()
        if error is not None and not is_needless(error)
    }
    waited = [move for move in pack if move.place not in errors]
    return errors | await _verified(admin, waited)


async def _verified(admin: Admin, moves: Sequence[LeaderMove]) -> dict[TopicPartition, str]:
    """Read again until everyone leads who should; what is not so in time, by partition."""
    deadline = time.monotonic() + admin.cluster.config.api_timeout_ms / 1000
    while True:
        found = await placements_of(admin, {move.place.topic for move in moves})
        wrong = {
            move.place: f"read again, it is led by {shown_leader(found.get(move.place))}"
            for move in moves
            if move.place not in found or found[move.place].leader != move.leader
        }
        if not wrong or time.monotonic() >= deadline:
            return wrong
        await asyncio.sleep(_LOOK_S)


async def placements_of(admin: Admin, topics: Iterable[str]) -> Placements:
    """The partitions of these topics as they are now."""
    names = set(topics)
    if not names:
        return {}
    if len(names) > _ALL_ABOVE:
        return await placements(admin)
    return {
        TopicPartition(topic.name, found.partition): Placement(
            TopicPartition(topic.name, found.partition),
            found.leader,
            tuple(found.replicas),
            frozenset(found.in_sync),
        )
        for topic in await admin.describe_topics(sorted(names))
        for found in topic.partitions
    }


_ALL_ABOVE: Final = 200
"""Above so many topics all are asked for."""


def shown_leader(found: Placement | None) -> str:
    """Who leads, in a sentence."""
    if found is None or found.leader is None:
        return "nobody"
    return f"node {found.leader}"


def as_json(move: LeaderMove, error: str | None, *, is_done: bool) -> dict[str, Any]:
    """One move for programs."""
    return {
        "topic": move.place.topic,
        "partition": move.place.partition,
        "leader": move.before.leader,
        "new_leader": move.leader,
        "replicas": list(move.before.replicas),
        "new_replicas": list(move.replicas),
        "done": is_done and error is None,
        "error": error,
    }
