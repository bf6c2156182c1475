"""``barnabas coordinators list``: who keeps what, and who could keep it next.

Source: docs/spec/console.md §2.3 (coordinator) and §7.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.console.partitions.placements import (
    OFFSETS,
    TRANSACTIONS,
    Placements,
    live_nodes,
    placements,
)

from .state_partitions import Standby, StatePartition, partition_of, state_partitions, statuses
from .status_token import add_token_option, status_token

COLUMNS: Final = (
    "TOPIC", "PARTITION", "COORDINATOR", "KEPT", "STANDING", "EPOCH", "LOAD-SECONDS", "STANDBYS",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Found:
    parts: Sequence[StatePartition]
    is_told: bool
    """At least one node says how its partitions stand."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--groups", action="store_true", help="only partitions that keep groups")
    which.add_argument(
        "--transactions", action="store_true", help="only partitions that keep transactions"
    )
    which.add_argument("--group", metavar="GROUP", help="only where this group is kept")
    which.add_argument(
        "--transactional-id", metavar="ID", help="only where this transactional id is kept"
    )
    add_token_option(parser)


def run(chosen: argparse.Namespace) -> int:
    """Print partitions, and how many each node has."""
    token = status_token(chosen)

    async def work(admin: Admin) -> _Found:
        known = await placements(admin)
        told = await statuses(admin, await live_nodes(admin), token)
        parts = [
            part
            for topic in _topics(chosen)
            for part in await state_partitions(admin, known, topic, told)
        ]
        return _Found(_meant(chosen, known, parts), bool(told))

    found = administer(chosen, work)
    if chosen.json:
        print_json([part.as_json() for part in found.parts])
    elif found.parts:
        _print(found.parts)
    if not found.parts:
        note("nothing is kept yet: the topic is made when the first group or transaction comes")
    elif not found.is_told:
        note(
            "standings and standbys are told by Barnabas' nodes with metrics.listener only; "
            "these tell none, or not to us (--status-token-file)"
        )
    return 0


def _topics(chosen: argparse.Namespace) -> list[str]:
    if chosen.groups or chosen.group is not None:
        return [OFFSETS]
    if chosen.transactions or chosen.transactional_id is not None:
        return [TRANSACTIONS]
    return [OFFSETS, TRANSACTIONS]


def _meant(
    chosen: argparse.Namespace, known: Placements, parts: list[StatePartition]
) -> list[StatePartition]:
    name = chosen.group if chosen.group is not None else chosen.transactional_id
    if name is None:
        return parts
    place = partition_of(known, _topics(chosen)[0], name)
    return [part for part in parts if part.placement.place == place]


def _print(parts: Sequence[StatePartition]) -> None:
    print_table(COLUMNS, [_row(part) for part in parts])
    print()
    kept: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for part in parts:
        if part.placement.leader is not None:
            led[part.placement.leader] += 1
            kept[part.placement.leader] += part.count or 0
    print_table(
        ("COORDINATOR", "PARTITIONS", "KEPT"),
        [(node, led[node], kept[node]) for node in sorted(led)],
    )


def _row(part: StatePartition) -> Sequence[Any]:
    return (
        part.placement.place.topic,
        part.placement.place.partition,
        shown(part.placement.leader),
        shown(part.count),
        shown(part.standing),
        shown(part.epoch),
        "-" if part.load_seconds is None else f"{part.load_seconds:.3f}",
        ",".join(map(_standby, part.standbys)) or "-",
    )


def _standby(one: Standby) -> str:
    """``2(0)``: node 2, none behind; ``3(?)`` where it does not tell, ``3(out)`` not in sync."""
    if not one.is_in_sync:
        return f"{one.node}(out)"
    return f"{one.node}({'?' if one.behind is None else one.behind})"
