"""``barnabas coordinators move``: a standby coordinates instead of the node that does.

Source: docs/spec/console.md §7 (hot coordinator); docs/spec/cluster.md §2.6.
"""

from __future__ import annotations

import argparse

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note
from barnabas.console.partitions.leader_change import (
    LeaderChange,
    add_change_options,
    carry_out,
    show,
)
from barnabas.console.partitions.leadership import led_by, refusal
from barnabas.console.partitions.placements import (
    OFFSETS,
    TRANSACTIONS,
    Placements,
    live_nodes,
    named,
    placements,
    require_up,
)

from .state_partitions import partition_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is to be coordinated elsewhere, and where."""
    parser.add_argument(
        "--group", action="append", default=[], metavar="GROUP",
        help="the partition that keeps this group, with all its other groups; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--transactional-id", action="append", default=[], metavar="ID",
        help="the partition that keeps this transactional id; may be repeated",
    )  # fmt: skip
    for option, topic in (("--partition", OFFSETS), ("--transaction-partition", TRANSACTIONS)):
        parser.add_argument(
            option, action="append", default=[], type=whole_number(0), metavar="P",
            help=f"this partition of {topic}; may be repeated",
        )  # fmt: skip
    parser.add_argument(
        "--to", type=whole_number(0), required=True, metavar="NODE",
        help="a node that has a copy and is in sync",
    )  # fmt: skip
    add_change_options(parser)


def check(chosen: argparse.Namespace) -> None:
    """Raises Misuse where nothing is named."""
    if not (
        chosen.group or chosen.transactional_id or chosen.partition or chosen.transaction_partition
    ):
        raise Misuse("say what: --group, --transactional-id, --partition, --transaction-partition")


def run(chosen: argparse.Namespace) -> int:
    """Move, or show what would be moved."""
    return show(chosen, administer(chosen, lambda admin: _moved(admin, chosen)))


async def _moved(admin: Admin, chosen: argparse.Namespace) -> LeaderChange:
    known = await placements(admin)
    require_up([chosen.to], await live_nodes(admin))
    wanted = [led_by(known[place], chosen.to) for place in _places(chosen, known)]
    refused = {
        move.place: why
        for move in wanted
        if move.is_needed and (why := refusal(move.before, move.leader)) is not None
    }
    return await carry_out(admin, chosen, wanted, refused)


def _places(chosen: argparse.Namespace, known: Placements) -> list[TopicPartition]:
    """Each once; raises Failure for a partition that is not there."""
    found: dict[TopicPartition, None] = {}
    for topic, names, numbers in (
        (OFFSETS, chosen.group, chosen.partition),
        (TRANSACTIONS, chosen.transactional_id, chosen.transaction_partition),
    ):
        for name in names:
            place = partition_of(known, topic, name)
            if place is None:
                raise Failure(f"{topic} is not there yet: nobody coordinates {name}")
            note(f"{name} is kept in {named(place)}")
            found[place] = None
        for number in numbers:
            place = TopicPartition(topic, number)
            if place not in known:
                raise Failure(f"there is no {named(place)}")
            found[place] = None
    return list(found)
