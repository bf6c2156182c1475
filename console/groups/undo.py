"""``barnabas groups undo``: a change of offsets taken back, by its undo file or by the history.

Source: docs/spec/coordinator.md §3.8; docs/spec/users.md §7, wish 8.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.audit_history import read_audit
from barnabas.client.admin.descriptions import Committed
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.output import shown
from barnabas.protocol.audit_topic import AuditRecord

from . import evict
from .evict import add_evict_option
from .offsets_csv import partition_text
from .plan import ChangePlan, GroupPartition, OffsetChange, by_group, offset_of, undoing
from .undo_file import read_undo_file


def add_undo_arguments(parser: argparse.ArgumentParser) -> None:
    """Which change, and what to do where the group has moved on."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("file", nargs="?", type=Path, metavar="FILE", help="an undo file")
    which.add_argument("--change", metavar="ID", help="a change in the history of the cluster")
    add_evict_option(parser)
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
    refusals = {group.group: why for group in groups if (why := evict.refusal_of(group, chosen))}
    if not chosen.force:
        for group, changes in by_group(moved).items():
            refusals.setdefault(group, _moved_on(group, changes))
    evicted = {
        name: count
        for group in groups
        if group.group not in refusals
        for name, count in evict.evicted_of(group, chosen).items()
    }
    return ChangePlan(
        changes=[change for change in back if change.group not in refusals],
        refusals=refusals,
        evicted=evicted,
        notes=[evict.warning(name, count) for name, count in evicted.items()],
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
    for record in await read_audit(admin, lambda record: _is_of(record, change_id)):
        topic_partition = TopicPartition(record.topic, record.partition)
        before = found.get((record.group, topic_partition))
        found[record.group, topic_partition] = OffsetChange(
            group=record.group,
            topic_partition=topic_partition,
            old=_committed(record.old_offset, record.old_metadata, record.old_leader_epoch)
            if before is None
            else before.old,
            new=_committed(record.new_offset, record.new_metadata, record.new_leader_epoch),
        )
    if not found:
        raise Failure(f"the cluster has no record of a change {change_id}")
    return list(found.values())


def _committed(offset: int | None, metadata: str, leader_epoch: int) -> Committed | None:
    if offset is None:
        return None
    return Committed(offset=offset, metadata=metadata, leader_epoch=leader_epoch)


def undo_summary(chosen: argparse.Namespace) -> str:
    """The command in a few words."""
    return f"undo {chosen.change or chosen.file.name}"


def _is_of(record: AuditRecord, change_id: str) -> bool:
    """Whether it is a changed offset of this change; other changes have no group."""
    return record.change == change_id and bool(record.group)
