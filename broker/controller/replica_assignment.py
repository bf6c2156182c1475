"""Replica assignment: which nodes get the replicas of a new partition, rack by rack.

Source: docs/spec/cluster.md §2.10 and §2.10.1.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.protocol.names import is_internal

log = logging.getLogger(__name__)

Assignment = dict[int, tuple[int, ...]]
"""Partition to its replicas in order; the first is the preferred leader."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A live node as far as placing replicas goes."""

    id: int
    rack: str | None = None
    roles: frozenset[str] = frozenset(("broker", "coordinator"))


def role_of(topic: str) -> str:
    """The role a node must have to host ``topic``: internal topics belong to coordinators."""
    return "coordinator" if is_internal(topic) else "broker"


def candidates_for(topic: str, nodes: Iterable[CandidateNode]) -> list[CandidateNode]:
    """The nodes that may host ``topic``, in the order of their ids."""
    role = role_of(topic)
    return sorted((node for node in nodes if role in node.roles), key=lambda node: node.id)


def assign_new(
    nodes: Sequence[CandidateNode], *, partitions: int, factor: int, rng: random.Random
) -> Assignment:
    """Replicas for a new topic, begun at a random node so that topics do not pile up on one."""
    start = rng.randrange(len(nodes))
    shift = rng.randrange(len(nodes))
    return assign(nodes, partitions=partitions, factor=factor, start=start, shift=shift)


def assign_added(
    nodes: Sequence[CandidateNode], *, existing: Assignment, partitions: int
) -> Assignment:
    """Replicas for partitions added behind ``existing`` ones, going on where those ended."""
    first = existing[0]
    ids = sorted(node.id for node in nodes)
    start = next((index for index, node in enumerate(ids) if node >= first[0]), 0)
    return assign(
        nodes,
        partitions=partitions,
        factor=len(first),
        start=start,
        shift=start,
        first=len(existing),
    )


def assign(
    nodes: Sequence[CandidateNode],
    *,
    partitions: int,
    factor: int,
    start: int,
    shift: int,
    first: int = 0,
) -> Assignment:
    """Spread ``partitions`` × ``factor`` replicas, over racks when every node names its rack.

    ``first`` is the number of the first partition; 1 ≤ ``factor`` ≤ number of nodes.
    """
    assert 1 <= factor <= len(nodes), f"{factor} replicas on {len(nodes)} nodes"
    racks = {node.rack for node in nodes}
    if None in racks and len(racks) > 1:
        log.warning("ignored racks: some nodes have none nodes=%s", [node.id for node in nodes])
    if None in racks:
        order = sorted(nodes, key=lambda node: node.id)
        stride, rack_of = 1, {node.id: str(node.id) for node in order}
    else:
        order = _alternated(nodes)
        stride, rack_of = len(racks), {node.id: str(node.rack) for node in order}
    ids = [node.id for node in order]
    assignment: Assignment = {}
    for partition in range(first, first + partitions):
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        assignment[partition] = _replicas(ids, rack_of, partition + start, shift * stride, factor)
    return assignment


def _replicas(
    ids: Sequence[int], rack_of: dict[int, str], leader: int, shift: int, factor: int
) -> tuple[int, ...]:
    """The leader, then followers at a moving distance, none twice, racks used up evenly."""
    count = len(ids)
    rack_count = len(set(rack_of.values()))
    replicas = [ids[leader % count]]
    racks = {rack_of[replicas[0]]}
    step = 0
    while len(replicas) < factor:
        node = ids[(leader % count + 1 + (shift + step) % (count - 1)) % count]
        step += 1
        is_rack_free = rack_of[node] not in racks or len(racks) == rack_count
        if is_rack_free and node not in replicas:
            replicas.append(node)
            racks.add(rack_of[node])
    return tuple(replicas)


def _alternated(nodes: Sequence[CandidateNode]) -> list[CandidateNode]:
    """One node of each rack in turn, racks by name, nodes by id."""
    shelves: dict[str, list[CandidateNode]] = {}
    for node in sorted(nodes, key=lambda node: (str(node.rack), node.id)):
        shelves.setdefault(str(node.rack), []).append(node)
    longest = max(map(len, shelves.values()))
    return [
        shelf[depth] for depth in range(longest) for shelf in shelves.values() if depth < len(shelf)
    ]
