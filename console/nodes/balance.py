"""Who leads instead of a node, who has its copies, and what its share is. Pure.

Plain topics, transactions and offsets are balanced each for itself, so that no node coordinates
everything. Source: docs/spec/console.md §7; docs/spec/cluster.md §2.6 and §2.12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.cluster import TopicPartition
from barnabas.console.partitions.leadership import LeaderMove, led_by
from barnabas.console.partitions.placements import Placement, rank

FRESH: Final = 1000
"""A standby that has fewer records to apply takes over at once."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node that is up; None where nobody told."""

    id: int
    rack: str | None = None
    roles: frozenset[str] | None = None

    def may_host(self, topic: str) -> bool:
        """Whether it may have copies of ``topic``; a node that tells no roles has them all."""
        role = "coordinator" if rank(topic) else "broker"
        return self.roles is None or role in self.roles


@dataclass(slots=True)
class Leaderships:
    """A plan: who is to lead, and why some stay where they are."""

    moves: list[LeaderMove] = field(default_factory=list)
    refused: dict[TopicPartition, str] = field(default_factory=dict)


def drained(
    known: Iterable[Placement], node: int, up: Iterable[int], behind: Mapping[tuple[int, int], int]
) -> Leaderships:
    """Others lead what ``node`` leads or is first for; it comes last among the replicas.

    A node in sync that leads least is chosen, of offsets partitions one that has little to apply
    (``behind``: by node and partition). Where no other is in sync the leader stays.
    """
    live = set(up) - {node}
    every = list(known)
    totals = _leaders(every)
    plan = Leaderships()
    for one in every:
        if node not in one.replicas or node not in (one.leader, one.preferred):
            continue
        if one.leader is not None and one.leader != node:  # it is first, and does not lead now
            plan.moves.append(led_by(one, one.leader, last=node))
            continue
        others = [other for other in one.replicas if other in live and other in one.in_sync]
        if one.leader is None or not others:
            plan.refused[one.place] = _stays(one, node)
            continue
        chosen = min(others, key=lambda other: _cost(one, other, totals, behind))
        totals[rank(one.place.topic)][chosen] += 1
        plan.moves.append(led_by(one, chosen, last=node))
    return plan


def _leaders(every: Iterable[Placement]) -> dict[int, Counter[int]]:
    """By kind of topic, how many partitions each node leads."""
    totals: dict[int, Counter[int]] = {0: Counter(), 1: Counter(), 2: Counter()}
    for one in every:
        if one.leader is not None:
            totals[rank(one.place.topic)][one.leader] += 1
    return totals


def _cost(
    one: Placement,
    other: int,
    totals: Mapping[int, Counter[int]],
    behind: Mapping[tuple[int, int], int],
) -> tuple[bool, int, int]:
    kind = rank(one.place.topic)
    is_stale = kind == 2 and behind.get((other, one.place.partition), 0) >= FRESH
    return is_stale, totals[kind][other], one.replicas.index(other)


def _stays(one: Placement, node: int) -> str:
    if one.leader is None:
        return "it has no leader now"
    if len(one.replicas) == 1:
        return f"node {node} has its only copy: --replicas moves it, else it stops with the node"
    return "no other copy is in sync: --wait until one is, or it stops with the node"


def filled(known: Collection[Placement], node: int, up: Iterable[int]) -> list[LeaderMove]:
    """``node`` leads what it is first for, and its share of what it has copies of.

    Leaderships are taken from who is first for most, and of topics of which it leads least.
    """
    live = set(up)
    moves: list[LeaderMove] = []
    for kind in (0, 1, 2):
        every = [one for one in known if rank(one.place.topic) == kind]
        moves += [
            led_by(one, node)
            for one in every
            if one.preferred == node and one.leader != node and node in one.in_sync
        ]
        first = Counter(one.preferred for one in every)
        share = len(every) // max(1, len(live))
        of_topic = Counter(one.place.topic for one in every if one.preferred == node)
        open_to = [one for one in every if node in one.in_sync and one.preferred != node]
        while first[node] < share and open_to:
            one = max(open_to, key=lambda one: (first[one.preferred], -of_topic[one.place.topic]))
            open_to.remove(one)
            if first[one.preferred] <= first[node] + 1:
                break
            moves.append(led_by(one, node))
            first[one.preferred] -= 1
            first[node] += 1
            of_topic[one.place.topic] += 1
    return moves


Wanted = dict[TopicPartition, tuple[int, ...]]
"""The replicas that partitions are to have."""


def without(
    known: Iterable[Placement], node: int, facts: Sequence[NodeFacts]
) -> tuple[Wanted, dict[TopicPartition, str]]:
    """Another node has each copy of ``node``: in another rack than the rest, with fewest copies.

    It comes last, so that a copy leads that is there already. Left out, with why, is what has
    nowhere to go.
    """
    every = list(known)
    copies = Counter(replica for one in every for replica in one.replicas)
    racks = {fact.id: fact.rack for fact in facts}
    wanted: Wanted = {}
    refused: dict[TopicPartition, str] = {}
    for one in every:
        if node not in one.replicas:
            continue
        rest = [replica for replica in one.replicas if replica != node]
        able = [
            fact for fact in facts
            if fact.id not in one.replicas and fact.may_host(one.place.topic)
        ]  # fmt: skip
        if not able:
            refused[one.place] = f"no other node could have the copy of node {node}"
            continue
        taken = {racks.get(replica) for replica in rest} - {None}
        chosen = min(able, key=lambda fact: (fact.rack in taken, copies[fact.id], fact.id)).id
        copies[chosen] += 1
        wanted[one.place] = (*rest, chosen)
    return wanted, refused


def with_copies(known: Collection[Placement], node: NodeFacts, up: Iterable[int]) -> Wanted:
    """``node`` has its share of copies, each instead of one of the node that has most.

    A copy that leads is taken only where it is the only one, so that few leaderships move.
    """
    live = set(up)
    wanted: Wanted = {}
    for kind in (0, 1, 2):
        every = [one for one in known if rank(one.place.topic) == kind]
        every = [one for one in every if node.may_host(one.place.topic)]
        copies = Counter(replica for one in every for replica in one.replicas)
        share = sum(copies.values()) // max(1, len(live))
        of_topic = Counter(one.place.topic for one in every if node.id in one.replicas)
        open_to = [one for one in every if node.id not in one.replicas]
        while copies[node.id] < share and open_to:
            one = max(
                open_to, key=lambda one: (copies[_giver(one, copies)], -of_topic[one.place.topic])
            )
            open_to.remove(one)
            giver = _giver(one, copies)
            if copies[giver] <= copies[node.id] + 1:
                break
            wanted[one.place] = tuple(node.id if old == giver else old for old in one.replicas)
            copies[giver] -= 1
            copies[node.id] += 1
            of_topic[one.place.topic] += 1
    return wanted


def _giver(one: Placement, copies: Counter[int]) -> int:
    followers = [replica for replica in one.replicas if replica != one.leader]
    return max(followers or one.replicas, key=lambda replica: copies[replica])
