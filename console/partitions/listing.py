"""``barnabas partitions list``: leaders and copies, or only those with which something is amiss.

Source: docs/spec/users.md §2.1 (the filters of kafka-topics --describe).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import print_json, print_table, shown

from .placements import Placement, add_scope, in_scope, listed, placements

_COLUMNS: Final = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "NOTE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which partitions."""
    add_scope(parser, "only these")
    parser.add_argument(
        "--node", type=whole_number(0), metavar="NODE", help="only what this node copies or leads"
    )
    parser.add_argument(
        "--led", action="store_true", help="with --node: only what it leads"
    )  # fmt: skip
    for name, (meaning, _) in _FILTERS.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)


_FILTERS: Final[dict[str, tuple[str, Callable[[Placement], bool]]]] = {
    "under-replicated": (
        "only where a replica is not in sync",
        lambda one: not set(one.replicas) <= one.in_sync,
    ),
    "without-leader": ("only where nobody leads", lambda one: one.leader is None),
    "not-preferred": (
        "only where another than the first replica leads",
        lambda one: one.leader != one.preferred,
    ),
}


def run(chosen: argparse.Namespace) -> int:
    """Print them."""
    known = administer(chosen, placements)
    found = [one for one in in_scope(known, chosen.topics) if _is_meant(chosen, one)]
    if chosen.json:
        print_json(
            [
                {
                    "topic": one.place.topic,
                    "partition": one.place.partition,
                    "leader": one.leader,
                    "replicas": list(one.replicas),
                    "in_sync": sorted(one.in_sync),
                    "notes": _notes(one),
                }
                for one in found
            ]
        )
        return 0
    rows = [
        (
            one.place.topic,
            one.place.partition,
            shown(one.leader),
            listed(one.replicas),
            listed(sorted(one.in_sync)),
            ",".join(_notes(one)),
        )
        for one in found
    ]
    print_table(_COLUMNS, rows)
    return 0


def _is_meant(chosen: argparse.Namespace, one: Placement) -> bool:
    nodes = [one.leader] if chosen.led else [one.leader, *one.replicas]
    return (chosen.node is None or chosen.node in nodes) and all(
        is_so(one)
        for name, (_, is_so) in _FILTERS.items()
        if getattr(chosen, name.replace("-", "_"))
    )


def _notes(one: Placement) -> list[str]:
    """The names of the filters that it passes; without a leader nobody is preferred."""
    if one.leader is None:
        return ["without-leader"]
    return [name for name, (_, is_so) in _FILTERS.items() if is_so(one)]
