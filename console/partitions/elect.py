"""``barnabas partitions elect``: preferred leaders, a chosen leader, or any that lives.

Source: docs/spec/console.md §7; docs/spec/cluster.md §2.6; KIP-460.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.partition_admin import elect, is_needless
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table, shown

from .assignments import read_assignment
from .leader_change import LeaderChange, add_change_options, carry_out, show
from .leadership import LeaderMove, led_by, refusal
from .placements import (
    Placement,
    Placements,
    add_scope,
    in_scope,
    listed,
    live_nodes,
    named,
    placements,
    require_up,
)

COLUMNS = ("TOPIC", "PARTITION", "LEADER", "NEW-LEADER", "ISR", "REPLICAS")
_LOOK_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which partitions, and which kind of election."""
    add_scope(parser, "these partitions; every one where none is named (--preferred only)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--preferred", action="store_true", help="the first replica, as is the default"
    )
    way.add_argument(
        "--to", type=whole_number(0), metavar="NODE", help="this replica, which becomes the first"
    )
    way.add_argument(
        "--from-file", type=Path, metavar="FILE", help="replicas as an undo file has them"
    )
    way.add_argument(
        "--unclean", action="store_true",
        help="any live replica, where no in-sync one is left: acknowledged records may be gone",
    )  # fmt: skip
    parser.add_argument(
        "--confirm", action="append", default=[], metavar="TOPIC",
        help="for --unclean: the name of each topic typed again",
    )  # fmt: skip
    add_change_options(parser)


def check(chosen: argparse.Namespace) -> None:
    """Raises Misuse for what contradicts itself; reads what is given as a file."""
    if chosen.to is not None and not chosen.topics:
        raise Misuse("--to: name the partitions that the node is to lead")
    if chosen.from_file is not None:
        if chosen.topics:
            raise Misuse("--from-file names the partitions: say none besides")
        chosen.read = read_assignment(chosen.from_file)
    if chosen.confirm and not chosen.unclean:
        raise Misuse("--confirm goes with --unclean")
    if chosen.unclean:
        _check_unclean(chosen)


def _check_unclean(chosen: argparse.Namespace) -> None:
    topics = list(dict.fromkeys(name for name, _ in chosen.topics))
    if not topics:
        raise Misuse("--unclean: name the partitions; records of each may be lost")
    missing = [name for name in topics if name not in chosen.confirm]
    if chosen.execute and missing:
        raise Misuse(
            f"acknowledged records of {missing[0]} may be gone for good, and groups that read "
            f"them be beyond its end. Type its name again to do it: --confirm {missing[0]}"
        )
    if strangers := sorted(set(chosen.confirm) - set(topics)):
        raise Misuse(f"--confirm: {strangers[0]} is not to be elected for")


def run(chosen: argparse.Namespace) -> int:
    """Elect, or show what would be elected; 1 when a part of it cannot be."""
    if chosen.to is not None or chosen.from_file is not None:
        return show(chosen, administer(chosen, lambda admin: _chosen(admin, chosen)))
    return _show(chosen, administer(chosen, lambda admin: _elected(admin, chosen)))


async def _chosen(admin: Admin, chosen: argparse.Namespace) -> LeaderChange:
    known = await placements(admin)
    wanted: list[LeaderMove] = []
    if chosen.from_file is not None:
        for place, replicas in chosen.read.items():
            if place not in known:
                raise Failure(f"{named(place)} does not exist")
            if set(replicas) != set(known[place].replicas):
                raise Failure(
                    f"{named(place)} is on nodes {listed(known[place].replicas)}, not on "
                    f"{listed(replicas)}: `barnabas partitions move --from-file` copies it"
                )
            wanted.append(LeaderMove(known[place], replicas[0], replicas))
    else:
        require_up([chosen.to], await live_nodes(admin))
        wanted = [led_by(found, chosen.to) for found in in_scope(known, chosen.topics)]
    refused = {
        move.place: why
        for move in wanted
        if move.is_needed and (why := refusal(move.before, move.leader)) is not None
    }
    return await carry_out(admin, chosen, wanted, refused)


Elected = list[tuple[Placement, int | None, KafkaError | None]]
"""Each partition, who leads or is to lead it, and why not."""


async def _elected(admin: Admin, chosen: argparse.Namespace) -> tuple[Elected, bool]:
    """Only those that need it; with ``--execute`` what came of it."""
    found = in_scope(await placements(admin), chosen.topics)
    up = await live_nodes(admin)
    if chosen.unclean:
        wanted = [one for one in found if one.leader is None]
    else:
        wanted = [one for one in found if one.leader != one.preferred]
    if not chosen.execute or not wanted:
        return [(one, _expected(one, up, is_unclean=chosen.unclean), None) for one in wanted], False
    asked = [one.place for one in wanted]
    outcomes = await elect(admin.cluster, asked, is_unclean=chosen.unclean)
    errors = {place: _why(error) for place, error in outcomes.items()}
    after = await _after(admin, [place for place in asked if errors.get(place) is None])
    return [(one, after[one.place].leader, errors.get(one.place)) for one in wanted], True


async def _after(admin: Admin, elected: list[TopicPartition]) -> Placements:
    """As it is now, once the node that is asked has heard of the leaders that were elected."""
    deadline = time.monotonic() + admin.cluster.config.api_timeout_ms / 1000
    while True:
        after = await placements(admin)
        if all(after[place].leader is not None for place in elected):
            return after
        if time.monotonic() >= deadline:
            raise Failure("the leaders were elected, but no node tells who they are")
        await asyncio.sleep(_LOOK_S)


def _expected(one: Placement, up: list[int], *, is_unclean: bool) -> int | None:
    if is_unclean:
        return next((node for node in one.replicas if node in up), None)
    return one.preferred if one.preferred in up and one.preferred in one.in_sync else None


def _why(error: KafkaError | None) -> KafkaError | None:
    return None if is_needless(error) else error


def _show(chosen: argparse.Namespace, outcome: tuple[Elected, bool]) -> int:
    elected, is_executed = outcome
    if chosen.json:
        print_json({"executed": is_executed, "partitions": [_row(*one) for one in elected]})
    elif elected:
        print_table(
            COLUMNS,
            [
                (
                    one.place.topic, one.place.partition, shown(one.leader), shown(leader),
                    listed(sorted(one.in_sync)), listed(one.replicas),
                )
                for one, leader, _ in elected
            ],
        )  # fmt: skip
    failed = [(one, error) for one, _, error in elected if error is not None]
    for one, error in failed:
        note(f"Error: {named(one.place)}: {error}")
    stuck = [one for one, leader, _ in elected if leader is None]
    if not is_executed:
        for one in stuck:
            note(f"Error: {named(one.place)}: {_stuck(one, is_unclean=chosen.unclean)}")
    note(_conclusion(chosen, elected, is_executed=is_executed))
    return 1 if failed or stuck else 0


def _stuck(one: Placement, *, is_unclean: bool) -> str:
    if is_unclean:
        return "none of its replicas is up"
    return f"node {one.preferred} is not up, or not in sync"


def _row(one: Placement, leader: int | None, error: KafkaError | None) -> dict[str, Any]:
    return {
        "topic": one.place.topic,
        "partition": one.place.partition,
        "leader": one.leader,
        "new_leader": leader,
        "in_sync": sorted(one.in_sync),
        "replicas": list(one.replicas),
        "error": None if error is None else str(error),
    }


def _conclusion(chosen: argparse.Namespace, elected: Elected, *, is_executed: bool) -> str:
    if not elected:
        if chosen.unclean:
            return "nothing to elect: each of these partitions has a leader"
        return "nothing to elect: each of these partitions is led by its first replica"
    if is_executed:
        done = sum(error is None for _, _, error in elected)
        return f"elected the leaders of {done} of {len(elected)} partitions"
    return "dry run: nothing was changed; --execute does it"
