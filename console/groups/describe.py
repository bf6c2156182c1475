"""What ``barnabas groups`` only shows: names, offsets, members and state of groups.

Source: docs/spec/users.md §2.1 (kafka-consumer-groups, whose columns scripts rely on) and section
3.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import GroupDescription, MemberDescription, Progress
from barnabas.client.cluster import Node, TopicPartition
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import note, print_json, print_table, shown

from . import lag

OFFSET_COLUMNS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
_EMPTY: Final = "Empty"
_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
_TYPES: Final = ("Consumer", "Classic", "Share")
"""The last is of Kafka 4 alone."""
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """What to list and to show of it."""
    parser.add_argument(
        "--state", nargs="?", const="", metavar="STATES", help="with their state; only of these"
    )
    parser.add_argument(
        "--type", nargs="?", const="", metavar="TYPES", help="with their type; only of these"
    )


def add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    """Which groups, and what of them."""
    _add_groups(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="members instead of offsets")
    what.add_argument("--state", action="store_true", help="state instead of offsets")
    what.add_argument("--lag", action="store_true", help="with lag in seconds and a verdict")
    parser.set_defaults(max_lag=None, max_seconds=None)


def add_members_arguments(parser: argparse.ArgumentParser) -> None:
    """Which groups, and how much to tell."""
    _add_groups(parser)
    parser.set_defaults(members=True, state=False, lag=False)


def _add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="with what each member was given")


def add_lag_arguments(parser: argparse.ArgumentParser) -> None:
    """Which groups, and when to complain."""
    parser.add_argument("names", nargs="*", metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true")
    lag.add_options(parser)


def show_lag(chosen: argparse.Namespace) -> int:
    """How far groups are behind, and what that means."""
    return lag.run(chosen, OFFSET_COLUMNS, offset_cells)


def list_groups(chosen: argparse.Namespace) -> int:
    """Name all groups, or those in some state or of some type."""
    states = _words("state", chosen.state, _STATES)
    types = [word.lower() for word in _words("type", chosen.type, _TYPES)]
    groups = administer(chosen, lambda admin: admin.list_groups(states, types))
    columns = ["GROUP"]
    columns += ["TYPE"] if chosen.type is not None else []
    columns += ["STATE"] if chosen.state is not None else []
    if chosen.json:
        print_json([asdict(group) for group in groups])
    elif len(columns) == 1:
        for group in groups:
            print(group.group)
    else:
        cells = [
            {
                "GROUP": listing.group,
                "TYPE": listing.group_type.capitalize(),
                "STATE": listing.state,
            }
            for listing in groups
        ]
        print_table(columns, [[row[column] for column in columns] for row in cells])
    return 0


def _words(what: str, listed: str | None, valid: Sequence[str]) -> list[str]:
    """``a, b`` as a list; nothing for an option without a value.

    Case does not matter, as in Kafka. Raises Misuse, in Kafka's words, for what is not ``valid``.
    """
    found = [word.strip() for word in (listed or "").split(",") if word.strip()]
    spelt = {word.lower(): word for word in valid}
    if not all(word.lower() in spelt for word in found):
        raise Misuse(f"Invalid {what} list '{listed}'. Valid {what}s are: {', '.join(valid)}")
    return [spelt[word.lower()] for word in found]


def describe(chosen: argparse.Namespace) -> int:
    """Show offsets, members or state of groups; 1 when one of them does not exist."""
    if chosen.lag:
        return show_lag(chosen)
    if not chosen.names and not chosen.all_groups:
        raise Misuse("name a group, or say --all-groups")
    described = administer(chosen, lambda admin: _described(admin, chosen))
    for group, _ in described:
        _note_condition(group)
    found = [(group, rows) for group, rows in described if group.exists]
    show = _show_state if chosen.state else _show_members if chosen.members else _show_offsets
    show(chosen, found)
    return 0 if len(found) == len(described) else 1


async def _described(
    admin: Admin, chosen: argparse.Namespace
) -> list[tuple[GroupDescription, list[Progress]]]:
    names = chosen.names or [group.group for group in await admin.list_groups()]
    groups = await asyncio.gather(*map(admin.describe_group, names))
    if chosen.members or chosen.state:
        return [(group, []) for group in groups]
    progress = await asyncio.gather(*map(admin.progress, groups))
    return list(zip(groups, progress, strict=True))


def _note_condition(group: GroupDescription) -> None:
    if not group.exists:
        note(f"Error: Consumer group '{group.group}' does not exist.")
    elif group.state == _EMPTY:
        note(f"Consumer group '{group.group}' has no active members.")
    elif group.state in _REBALANCING:
        note(f"Warning: Consumer group '{group.group}' is rebalancing.")


def _show_offsets(
    chosen: argparse.Namespace, found: Sequence[tuple[GroupDescription, list[Progress]]]
) -> None:
    rows = [row for _, progress in found for row in progress]
    if chosen.json:
        print_json([progress_as_json(row) for row in rows])
    elif rows:
        print_table(OFFSET_COLUMNS, [offset_cells(row) for row in rows])


def offset_cells(row: Progress) -> list[object]:
    """One line of the offsets table, ``-`` for what is unknown."""
    member = row.member
    return [
        row.group,
        shown(row.topic),
        shown(row.partition),
        shown(row.current_offset),
        shown(row.log_end_offset),
        shown(row.lag),
        shown(member and member.member_id),
        shown(member and member.host),
        shown(member and member.client_id),
    ]


def progress_as_json(row: Progress) -> dict[str, Any]:
    """One line of the offsets table for programs, with what the table has no room for."""
    member = row.member
    return {
        "group": row.group,
        "topic": row.topic,
        "partition": row.partition,
        "current_offset": row.current_offset,
        "log_start_offset": row.log_start_offset,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "consumer_id": member and member.member_id,
        "host": member and member.host,
        "client_id": member and member.client_id,
    }


def _show_members(
    chosen: argparse.Namespace, found: Sequence[tuple[GroupDescription, list[Progress]]]
) -> None:
    members = [(group.group, member) for group, _ in found for member in group.members]
    if chosen.json:
        print_json([{"group": group, **asdict(member)} for group, member in members])
        return
    if not members:
        return
    has_instances = any(member.instance_id for _, member in members)
    columns = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    columns[2:2] = ["GROUP-INSTANCE-ID"] if has_instances else []
    columns += ["ASSIGNMENT"] if chosen.verbose else []
    rows = []
    for group, member in members:
        row: list[object] = [group, member.member_id, member.host, member.client_id]
        row[2:2] = [shown(member.instance_id)] if has_instances else []
        row.append(len(member.assignment))
        row += [_assignment(member)] if chosen.verbose else []
        rows.append(row)
    print_table(columns, rows)


def _assignment(member: MemberDescription) -> str:
    """``a(0,1), b(2)``; ``-`` for none."""
    topics: dict[str, list[TopicPartition]] = {}
    for topic_partition in member.assignment:
        topics.setdefault(topic_partition.topic, []).append(topic_partition)
    parts = (
        f"{topic}({','.join(str(partition) for _, partition in topic_partitions)})"
        for topic, topic_partitions in topics.items()
    )
    return ", ".join(parts) or "-"


def _show_state(
    chosen: argparse.Namespace, found: Sequence[tuple[GroupDescription, list[Progress]]]
) -> None:
    if chosen.json:
        print_json(
            [
                {
                    "group": group.group,
                    "coordinator": group.coordinator._asdict(),
                    "assignment_strategy": group.assignor,
                    "state": group.state,
                    "members": len(group.members),
                }
                for group, _ in found
            ]
        )
    elif found:
        rows = [
            (
                described.group,
                _address_and_id(described.coordinator),
                described.assignor or "-",
                described.state,
                len(described.members),
            )
            for described, _ in found
        ]
        columns = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
        print_table(columns, rows)


def _address_and_id(node: Node) -> str:
    return f"{node.host}:{node.port} ({node.id})"
