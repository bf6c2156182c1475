"""``barnabas groups history`` and ``undo``: who moved which offset, and the way back.

Source: docs/spec/coordinator.md §3.8; docs/spec/users.md §7, wish 8.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.audit_history import read_audit
from barnabas.client.admin.descriptions import Committed
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.protocol.audit_topic import AuditRecord

from .offsets_csv import partition_text
from .plan import ChangePlan, GroupPartition, OffsetChange, activity, by_group, offset_of, undoing
from .scope import TopicScope, add_topics
from .time_arguments import datetime_ms, time_text
from .undo_file import read_undo_file

COLUMNS: Final = (
    "TIME",
    "CHANGE",
    "GROUP",
    "TOPIC",
    "PARTITION",
    "OLD-OFFSET",
    "NEW-OFFSET",
    "ACTION",
    "PRINCIPAL",
    "HOST",
    "REASON",
)


# -- history --------------------------------------------------------------------------------


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show of it."""
    parser.add_argument("names", nargs="*", metavar="GROUP", help="default: all groups")
    add_topics(parser)
    parser.add_argument(
        "--since", type=datetime_ms, metavar="YYYY-MM-DDTHH:mm:SS.sss", help="only from then on"
    )
    parser.add_argument("--change", metavar="ID", help="only this change")
    parser.add_argument(
        "--limit", type=whole_number(1), metavar="N", help="only the latest N offsets that changed"
    )


def history(chosen: argparse.Namespace) -> int:
    """Print what is recorded of changes, the oldest first."""
    found = _once(administer(chosen, lambda admin: _recorded_of(admin, chosen)))
    if chosen.limit is not None:
        found = found[-chosen.limit :]
    if chosen.json:
        print_json([asdict(record) for record in found])
    elif found:
        print_table(COLUMNS, [_row(record) for record in found])
    else:
        note("no change of offsets is recorded")
    return 0


async def _recorded_of(admin: Admin, chosen: argparse.Namespace) -> list[AuditRecord]:
    return await read_audit(
        admin, lambda record: _is_asked_for(record, chosen), since_ms=chosen.since
    )


def _once(records: Iterable[AuditRecord]) -> list[AuditRecord]:
    """Without the repetitions of a writer that was not sure."""
    return list(dict.fromkeys(records))


def _is_asked_for(record: AuditRecord, chosen: argparse.Namespace) -> bool:
    return (
        (not chosen.names or record.group in chosen.names)
        and (chosen.change is None or record.change == chosen.change)
        and _is_within(record, chosen.topics)
    )


def _is_within(record: AuditRecord, topics: Sequence[TopicScope]) -> bool:
    return not topics or any(
        name == record.topic and (indexes is None or record.partition in indexes)
        for name, indexes in topics
    )


def _row(record: AuditRecord) -> list[object]:
    return [
        time_text(record.time_ms),
        record.change or "-",
        record.group,
        record.topic,
        record.partition,
        shown(record.old_offset),
        shown(record.new_offset),
        record.action,
        record.principal,
        record.host,
        record.reason or f"client {record.client_id}",
    ]


# -- undo -----------------------------------------------------------------------------------


def add_undo_arguments(parser: argparse.ArgumentParser) -> None:
    """Which change, and what to do where the group has moved on."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("file", nargs="?", type=Path, metavar="FILE", help="an undo file")
    which.add_argument("--change", metavar="ID", help="a change in the history of the cluster")
    parser.add_argument(
        "--force", action="store_true", help="also offsets that were committed anew since"
    )


async def planned_undo(admin: Admin, chosen: argparse.Namespace) -> ChangePlan:
    """The way back, under the rules of any reset; refused for groups that have moved on since."""
    done = read_undo_file(chosen.file) if chosen.file else await _recorded(admin, chosen.change)
    names = list(by_group(done))
    groups = await asyncio.gather(*map(admin.describe_group, names))
    committed = dict(
        zip(names, await asyncio.gather(*map(admin.committed_offsets, names)), strict=True)
    )
    back, moved = undoing(done, committed)
    refusals = {group.group: why for group in groups if (why := activity(group)) is not None}
    if not chosen.force:
        for group, changes in by_group(moved).items():
            refusals.setdefault(group, _moved_on(group, changes))
    return ChangePlan(
        changes=[change for change in back if change.group not in refusals], refusals=refusals
    )


def _moved_on(group: str, changes: Sequence[OffsetChange]) -> str:
    """``changes`` have what is there now as old, what the change had left as new offset."""
    first = changes[0]
    return (
        f"Consumer group '{group}' has moved on since: "
        f"{partition_text(first.topic_partition)} is at "
        f"{shown(offset_of(first.old))}, the change left it at {shown(offset_of(first.new))} "
        "(--force undoes it all the same)"
    )


async def _recorded(admin: Admin, change_id: str) -> list[OffsetChange]:
    """A change out of the history; where it touched an offset twice, from first to last."""
    found: dict[GroupPartition, OffsetChange] = {}
    for record in await read_audit(admin, lambda record: record.change == change_id):
        topic_partition = TopicPartition(record.topic, record.partition)
        before = found.get((record.group, topic_partition))
        found[record.group, topic_partition] = OffsetChange(
            group=record.group,
            topic_partition=topic_partition,
            old=_old(record) if before is None else before.old,
            new=_new(record),
        )
    if not found:
        raise Failure(f"the cluster has no record of a change {change_id}")
    return list(found.values())


def _old(record: AuditRecord) -> Committed | None:
    if record.old_offset is None:
        return None
    return Committed(
        offset=record.old_offset,
        metadata=record.old_metadata,
        leader_epoch=record.old_leader_epoch,
    )


def _new(record: AuditRecord) -> Committed | None:
    if record.new_offset is None:
        return None
    return Committed(
        offset=record.new_offset,
        metadata=record.new_metadata,
        leader_epoch=record.new_leader_epoch,
    )


def undo_summary(chosen: argparse.Namespace) -> str:
    """The command in a few words."""
    return f"undo {chosen.change or chosen.file.name}"
