"""``barnabas groups``: list groups, and describe their offsets, members or state.

Source: users.md section 2.1 (kafka-consumer-groups, whose columns scripts rely on) and section 3.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from barnabas.client.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.client.descriptions import GroupDescription, MemberDescription, Progress

from . import groups_lag
from .cluster_options import add_cluster_options, administer
from .failure import Failure
from .output import note, print_json, print_table, shown

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
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be asked about groups."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="name all groups")
    listing.add_argument("--state", action="store_true", help="with their state")
    describe = commands.add_parser("describe", help="show offsets and lag of groups")
    describe.add_argument("names", nargs="*", metavar="GROUP")
    describe.add_argument("--all-groups", action="store_true")
    what = describe.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="members instead of offsets")
    what.add_argument("--state", action="store_true", help="state instead of offsets")
    what.add_argument("--lag", action="store_true", help="with lag in seconds and a verdict")
    describe.add_argument("--verbose", action="store_true", help="with what each member was given")
    describe.set_defaults(max_lag=None, max_seconds=None)
    lag = commands.add_parser("lag", help="show lag in records and seconds, and what it means")
    lag.add_argument("names", nargs="*", metavar="GROUP")
    lag.add_argument("--all-groups", action="store_true")
    groups_lag.add_options(lag)
    for sub in (listing, describe, lag):
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a group that was asked for does not exist."""
    if chosen.command == "list":
        return _list(chosen)
    if chosen.command == "lag" or chosen.lag:
        return groups_lag.run(chosen, OFFSET_COLUMNS, offset_cells)
    return _describe(chosen)


def _list(chosen: argparse.Namespace) -> int:
    groups = administer(chosen, lambda admin: admin.list_groups())
    if chosen.json:
        print_json([asdict(group) for group in groups])
    elif chosen.state:
        print_table(("GROUP", "STATE"), [(group.group, group.state) for group in groups])
    else:
        for group in groups:
            print(group.group)
    return 0


def _describe(chosen: argparse.Namespace) -> int:
    if not chosen.names and not chosen.all_groups:
        raise Failure("name a group, or say --all-groups")
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
    for place in member.assignment:
        topics.setdefault(place.topic, []).append(place)
    parts = (
        f"{topic}({','.join(str(place.partition) for place in places)})"
        for topic, places in topics.items()
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
                each.group,
                f"{each.coordinator.host}:{each.coordinator.port} ({each.coordinator.id})",
                each.assignor or "-",
                each.state,
                len(each.members),
            )
            for each, _ in found
        ]
        columns = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
        print_table(columns, rows)
