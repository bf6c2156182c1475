"""``barnabas partitions moves`` and ``cancel``: what is being moved, waited for or called off.

Source: docs/spec/console.md §7; docs/spec/cluster.md §2.12; KIP-455.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import (
    alter_node_settings,
    alter_reassignments,
    ongoing_moves,
)
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.console.groups.scope import is_in_scope

from .placements import add_scope, listed, live_nodes, named
from .throttle import RATES, clear_throttle, throttled_nodes
from .waiting import Progress, in_bytes, progress, wait_for

COLUMNS: Final = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "COPIED", "OF", "BEHIND")


@dataclass(slots=True)
class Ongoing:
    """What is under way, and what was done about it."""

    moves: list[Progress]
    throttled: list[int] = field(default_factory=list)
    cleared: list[str] | None = None
    errors: dict[TopicPartition, str] = field(default_factory=dict)


def add_moves_arguments(parser: argparse.ArgumentParser) -> None:
    """Which moves, and whether to wait for them."""
    add_scope(parser, "only these")
    parser.add_argument(
        "--wait", type=whole_number(0), metavar="SECONDS",
        help="until they are done, at most so long; fails (1) when they are not",
    )  # fmt: skip
    parser.add_argument(
        "--throttle", type=whole_number(1, 2**63 - 1), metavar="BYTES",
        help="let the nodes of these moves send and take so many bytes a second from now on",
    )  # fmt: skip
    parser.add_argument(
        "--clear-throttles", action="store_true",
        help="take back what --throttle has set on nodes and topics; not while something moves",
    )  # fmt: skip


def moves(chosen: argparse.Namespace) -> int:
    """Print what is being moved; 1 when it was waited for in vain."""
    found = administer(chosen, lambda admin: _looked_at(admin, chosen))
    _show(chosen, found)
    if chosen.throttle is not None and found.moves:
        note("`barnabas partitions moves --clear-throttles` takes the throttle back behind it")
    if found.cleared is not None:
        note(f"took back the throttles of {', '.join(found.cleared) or 'nobody: there were none'}")
    if found.throttled:
        note(f"nothing moves, and {_still_throttled(found)}")
    return 1 if chosen.wait is not None and found.moves else 0


async def _looked_at(admin: Admin, chosen: argparse.Namespace) -> Ongoing:
    places = await _meant(admin, chosen)
    if chosen.throttle is not None:
        await _throttle(admin, places, chosen.throttle)
    if chosen.wait is not None:
        await wait_for(admin, places, note, wait_s=chosen.wait)
    ongoing = await ongoing_moves(admin.cluster)
    left = {place: move for place, move in ongoing.items() if place in places}
    found = Ongoing(await progress(admin, left))
    if chosen.clear_throttles:
        if ongoing:
            raise Failure(f"{len(ongoing)} partitions are being moved: wait, or cancel them")
        found.cleared = await clear_throttle(admin)
    elif not ongoing:
        found.throttled = list(await _throttled(admin))
    return found


def _still_throttled(found: Ongoing) -> str:
    return (
        f"nodes {listed(found.throttled)} are still throttled: "
        "`barnabas partitions moves --clear-throttles` takes that back"
    )


async def _throttle(admin: Admin, places: Sequence[TopicPartition], rate: int) -> None:
    """Another bound: one below what is written meanwhile would never let a move end."""
    ongoing = await ongoing_moves(admin.cluster)
    nodes = {node for place in places if place in ongoing for node in ongoing[place].replicas}
    for node in sorted(nodes & set(await live_nodes(admin))):
        await alter_node_settings(admin.cluster, node, dict.fromkeys(RATES, str(rate)))


async def _throttled(admin: Admin) -> dict[int, dict[str, str]]:
    """Who may not see settings of nodes is told nothing of them."""
    try:
        return await throttled_nodes(admin.cluster, await live_nodes(admin))
    except KafkaError:
        return {}


async def _meant(admin: Admin, chosen: argparse.Namespace) -> list[TopicPartition]:
    return [
        place
        for place in await ongoing_moves(admin.cluster)
        if is_in_scope(chosen.topics, place.topic, place.partition)
    ]


def _show(chosen: argparse.Namespace, found: Ongoing) -> None:
    if chosen.json:
        rows = [{**one.as_json(), "error": found.errors.get(one.place)} for one in found.moves]
        print_json(rows)
    elif found.moves:
        print_table(
            COLUMNS,
            [
                (
                    one.place.topic, one.place.partition, listed(one.move.replicas),
                    listed(one.move.adding), listed(one.move.removing),
                    in_bytes(one.bytes_copied), in_bytes(one.bytes_whole), shown(one.behind),
                )
                for one in found.moves
            ],
        )  # fmt: skip
    else:
        note("nothing is being moved")


def add_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    """Which moves."""
    add_scope(parser, "these")
    parser.add_argument("--all", action="store_true", help="whatever is being moved")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--execute", action="store_true", help="do it; without this only show it")
    when.add_argument("--dry-run", action="store_true", help="only show it, as is the default")


def check_cancel(chosen: argparse.Namespace) -> None:
    """Raises Misuse unless it is said which."""
    if chosen.all == bool(chosen.topics):
        raise Misuse("name partitions that are being moved, or say --all")


def cancel(chosen: argparse.Namespace) -> int:
    """Call moves off: the new copies go, the former replicas stay."""

    async def work(admin: Admin) -> Ongoing:
        places = await _meant(admin, chosen)
        ongoing = await ongoing_moves(admin.cluster)
        wanted = {place: ongoing[place] for place in places if place in ongoing}
        found = Ongoing(await progress(admin, wanted))
        if chosen.execute and wanted:
            outcomes = await alter_reassignments(admin.cluster, dict.fromkeys(wanted))
            found.errors = {
                place: str(error) for place, error in outcomes.items() if error is not None
            }
            await wait_for(admin, wanted, lambda line: None, wait_s=chosen.timeout_ms / 1000)
            found.throttled = list(await _throttled(admin))
        return found

    found = administer(chosen, work)
    _show(chosen, found)
    for place, why in found.errors.items():
        note(f"Error: {named(place)}: {why}")
    if found.moves:
        done = len(found.moves) - len(found.errors)
        note(
            f"called off {done} of {len(found.moves)} moves"
            if chosen.execute
            else "dry run: nothing was changed; --execute does it"
        )
    if found.throttled:
        note(_still_throttled(found))
    return 1 if found.errors else 0
