"""``barnabas nodes drain`` and ``fill``: a node is emptied for maintenance, and given its share.

    drain             others lead what it leads: it may be stopped, and nobody waits
    drain --replicas  others have its copies, too: it may be taken out for good
    fill              it leads again what its undo file says, or its share
    fill --replicas   it is given copies first: a node that is new

Each step is a planned move with its undo file. Source: docs/spec/console.md §7;
docs/spec/cluster.md §2.6 and §2.12.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note
from barnabas.console.coordinators.status_token import add_token_option, status_token
from barnabas.console.partitions import leader_change, move
from barnabas.console.partitions.assignments import read_assignment
from barnabas.console.partitions.leader_change import LeaderChange
from barnabas.console.partitions.leadership import LeaderMove, refusal
from barnabas.console.partitions.move import MovePlan
from barnabas.console.partitions.placements import Placements, placements, require_up

from .balance import Leaderships, drained, filled, with_copies, without
from .facts import ClusterNodes, cluster_nodes, standbys_behind

_LOOK_S: Final = 0.5


def add_drain_arguments(parser: argparse.ArgumentParser) -> None:
    """Which node, and whether it goes for good."""
    _add_arguments(parser, "others have its copies, too, so that it can be taken out for good")


def add_fill_arguments(parser: argparse.ArgumentParser) -> None:
    """Which node, and what it is to have."""
    parser.add_argument(
        "--from-file", type=Path, metavar="FILE",
        help="what it led as an undo file of drain has it (default: its share)",
    )  # fmt: skip
    _add_arguments(parser, "it is given its share of copies first: for a node that is new")


def _add_arguments(parser: argparse.ArgumentParser, replicas: str) -> None:
    parser.add_argument("node", type=whole_number(0), metavar="NODE")
    parser.add_argument("--replicas", action="store_true", help=replicas)
    leader_change.add_change_options(parser)
    move.add_copy_options(parser)
    add_token_option(parser)


def check(chosen: argparse.Namespace) -> None:
    """Raises Misuse for what contradicts itself; reads what is given as a file."""
    if chosen.throttle is not None and not chosen.replicas:
        raise Misuse("--throttle goes with --replicas: else nothing is copied")
    if chosen.command == "fill" and chosen.from_file is not None:
        if chosen.replicas:
            raise Misuse("say --from-file or --replicas, not both")
        chosen.read = read_assignment(chosen.from_file)


def drain(chosen: argparse.Namespace) -> int:
    """Empty a node, or show what would be moved; 1 when a part of it stays."""
    if chosen.replicas:
        return _copies(chosen, _without)
    change = _administered(chosen, lambda admin: _drained(admin, chosen))
    code = leader_change.show(chosen, change)
    if change.is_executed and change.is_good:
        note(
            f"node {chosen.node} leads nothing now: it may be stopped (SIGTERM); when it is back "
            f"`barnabas nodes fill {chosen.node} --from-file {change.undo_file} --execute`"
        )
    return code


def fill(chosen: argparse.Namespace) -> int:
    """Give a node its share, or show what it would be given."""
    if chosen.replicas:
        code = _copies(chosen, _with_copies)
        if code or not chosen.execute:
            return code
        note(f"`barnabas nodes fill {chosen.node} --execute` lets it lead its share of them")
        return code
    return leader_change.show(chosen, _administered(chosen, lambda admin: _filled(admin, chosen)))


def _administered(chosen: argparse.Namespace, work: Any) -> LeaderChange:
    found: LeaderChange = administer(chosen, work)
    return found


async def _drained(admin: Admin, chosen: argparse.Namespace) -> LeaderChange:
    token = status_token(chosen)
    deadline = time.monotonic() + (chosen.wait or 0)
    while True:
        nodes = await cluster_nodes(admin, token)
        known = await placements(admin)
        _require_known(chosen.node, nodes, known)
        plan = drained(known.values(), chosen.node, nodes.up, standbys_behind(nodes.nodes))
        lagging = [place for place in plan.refused if len(known[place].replicas) > 1]
        if not lagging or time.monotonic() >= deadline:
            break
        note(f"waiting for {len(lagging)} partitions of which no other copy is in sync")
        await asyncio.sleep(_LOOK_S)
    if nodes.controller == chosen.node:
        note(f"node {chosen.node} is the controller: another one is elected when it stops")
    change = await leader_change.carry_out(admin, chosen, plan.moves, plan.refused)
    if change.is_executed and not change.errors:
        change.errors = await _still_led(admin, chosen.node, change.refused)
    return change


async def _still_led(
    admin: Admin, node: int, known: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """What it leads all the same: made, or given back to it, meanwhile."""
    return {
        place: "read again, the node leads it: run the command again"
        for place, one in (await placements(admin)).items()
        if one.leader == node and place not in set(known)
    }


def _require_known(node: int, nodes: ClusterNodes, known: Placements) -> None:
    """A node that is down leads nothing, but may have copies."""
    if node not in nodes.up and not any(node in one.replicas for one in known.values()):
        require_up([node], nodes.up)


async def _filled(admin: Admin, chosen: argparse.Namespace) -> LeaderChange:
    nodes = await cluster_nodes(admin, status_token(chosen))
    known = await placements(admin)
    require_up([chosen.node], nodes.up)
    if not any(chosen.node in one.replicas for one in known.values()):
        raise Failure(f"node {chosen.node} has no copy of anything: --replicas gives it some")
    if chosen.from_file is None:
        plan = Leaderships(filled(known.values(), chosen.node, nodes.up))
    else:
        plan = _as_before(chosen, known)
    return await leader_change.carry_out(admin, chosen, plan.moves, plan.refused)


def _as_before(chosen: argparse.Namespace, known: Placements) -> Leaderships:
    """What the file says that the node was first for; what has changed since is left out."""
    plan = Leaderships()
    for place, replicas in chosen.read.items():
        if not replicas or replicas[0] != chosen.node:
            continue
        if place not in known:
            note(f"{place.topic}-{place.partition} is gone")
        elif set(replicas) != set(known[place].replicas):
            plan.refused[place] = "it has other replicas since"
        else:
            wanted = LeaderMove(known[place], chosen.node, replicas)
            why = refusal(known[place], chosen.node)
            if why is None:
                plan.moves.append(wanted)
            else:
                plan.refused[place] = why
    return plan


def _copies(chosen: argparse.Namespace, planned: Any) -> int:
    async def work(admin: Admin) -> MovePlan:
        found: MovePlan = await planned(admin, chosen)
        return found

    return move.show(chosen, administer(chosen, work))


async def _without(admin: Admin, chosen: argparse.Namespace) -> MovePlan:
    nodes = await cluster_nodes(admin, status_token(chosen))
    known = await placements(admin)
    _require_known(chosen.node, nodes, known)
    facts = [node.facts for node in nodes.nodes if node.id != chosen.node]
    wanted, refused = without(known.values(), chosen.node, facts)
    plan = await move.carry_out(admin, chosen, known, wanted)
    plan.refused |= refused
    if plan.is_executed and plan.is_good:
        note(f"node {chosen.node} has nothing now: it may be stopped, and its directory removed")
    return plan


async def _with_copies(admin: Admin, chosen: argparse.Namespace) -> MovePlan:
    nodes = await cluster_nodes(admin, status_token(chosen))
    known = await placements(admin)
    require_up([chosen.node], nodes.up)
    facts = next(node.facts for node in nodes.nodes if node.id == chosen.node)
    return await move.carry_out(
        admin, chosen, known, with_copies(known.values(), facts, nodes.up)
    )  # fmt: skip
