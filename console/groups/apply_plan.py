"""How every command changes groups: plan, show, write the undo file, apply, read again.

Without ``--execute`` nothing is changed. Source: docs/spec/users.md §7, wishes 7 and 8.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed
from barnabas.client.admin.live_groups import evict_and_alter
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.protocol.audit_topic import tool_client_id
from barnabas.protocol.errors import ErrorCode

from .evict import watch_return
from .plan import (
    ChangePlan,
    GroupPartition,
    OffsetChange,
    by_group,
    held_by_transactions,
    offset_of,
)
from .undo_file import write_undo_file

_WORDS: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members now: stop them first",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty, or a transaction holds offsets of it.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "Deleting offsets of a topic is forbidden while the consumer group is actively "
        "subscribed to it."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "an open transaction holds an offset of it: wait for its end, or stop its producer"
    ),
}
"""What is said for a code; Kafka's words where it has some."""


@dataclass(slots=True)
class ChangeResult:
    """A plan, and what became of it; before ``is_executed`` only the plan means something."""

    plan: ChangePlan
    change_id: str
    is_executed: bool = False
    undo_file: Path | None = None
    """Written before anything is changed; None when there was nothing to change, or nothing was."""
    errors: dict[GroupPartition, str] = field(default_factory=dict)
    """Of single offsets."""
    group_errors: dict[str, str] = field(default_factory=dict)
    """Of groups that could not be deleted."""
    returned: dict[str, str] = field(default_factory=dict)
    """By group whose members were taken out, whether they are back, and where they go on."""
    is_unclear: bool = False
    """Something failed in a way that does not tell whether it was done."""

    @property
    def is_good(self) -> bool:
        """Whether all that was asked for can be done, or was."""
        return not (self.plan.refusals or self.errors or self.group_errors)

    @property
    def has_changed(self) -> bool:
        """Whether anything is known to be other than before."""
        is_gone = any(group not in self.group_errors for group in self.plan.deleted)
        return self.is_executed and (is_gone or any(map(self._is_done, self.plan.needed)))

    def _is_done(self, change: OffsetChange) -> bool:
        failed = (change.group, change.topic_partition) in self.errors
        return not failed and change.group not in self.group_errors

    def fail(self, topic_partition: GroupPartition, code: ErrorCode) -> None:
        """An offset was answered with this error."""
        self.errors[topic_partition] = words(code)
        self.is_unclear |= not is_refusal(code)


Planner = Callable[[Admin, argparse.Namespace], Awaitable[ChangePlan]]


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """What every command takes that changes something."""
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--execute", action="store_true", help="do it; without this only show it")
    when.add_argument("--dry-run", action="store_true", help="only show it, as is the default")
    parser.add_argument(
        "--undo-file", type=Path, metavar="FILE",
        help="where to write what undoes it (default: barnabas-undo-TIME-ID.json, here)",
    )  # fmt: skip
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the group's history")


def carry_out(chosen: argparse.Namespace, planned: Planner, command: str) -> ChangeResult:
    """Plan and, with ``--execute``, do it; every group by itself.

    ``command`` names it for those who read the history later.
    Raises Failure or KafkaError when there is no plan, or no undo file: nothing is changed then.
    """
    change_id = secrets.token_hex(6)
    reason = f"{command}: {chosen.reason}" if chosen.reason else command

    async def work(admin: Admin) -> ChangeResult:
        outcome = await plan_change(admin, chosen, planned, change_id)
        if chosen.execute:
            await execute_plan(admin, chosen, command, outcome)
        return outcome

    return administer(chosen, work, client_id=tool_client_id(change_id, reason))


async def plan_change(
    admin: Admin, chosen: argparse.Namespace, planned: Planner, change_id: str = ""
) -> ChangeResult:
    """The plan and nothing more; without a ``change_id`` it is given one. Raises as carry_out."""
    plan = await planned(admin, chosen)
    return ChangeResult(
        plan.without(await _held_by_transactions(admin, plan)), change_id or secrets.token_hex(6)
    )


async def _held_by_transactions(admin: Admin, plan: ChangePlan) -> dict[str, str]:
    """By group, why nothing of it may be changed now.

    For the plan only, as the look for members is. Our coordinator refuses a tool that comes while a
    transaction holds the offset (88); Kafka's does not, so the offsets are looked at once more when
    they are written.
    """
    # Those that need no change, too: they would not stay as planned when the transaction commits.
    partitions: dict[str, list[TopicPartition] | None] = {
        group: [change.topic_partition for change in changes]
        for group, changes in by_group(plan.changes).items()
    }
    partitions.update(dict.fromkeys(plan.deleted))
    found = await asyncio.gather(
        *(admin.unstable_offsets(group, places) for group, places in partitions.items())
    )
    return {
        group: why
        for group, unstable in zip(partitions, found, strict=True)
        if (why := held_by_transactions(group, unstable)) is not None
    }


async def execute_plan(
    admin: Admin, chosen: argparse.Namespace, command: str, outcome: ChangeResult
) -> None:
    """Do what is planned and read it again; ``outcome`` tells what came of it.

    ``chosen.undo_file`` is where the way back is written first; None for a name of its own, here.
    Raises Failure when it cannot be written: nothing is changed then.
    """
    needed = outcome.plan.needed
    if needed:  # on the disk before the first request: a crash in the middle can be undone
        outcome.undo_file = _prepare_undo(chosen, command, outcome.change_id, needed)
    outcome.is_executed = True
    deleted = set(outcome.plan.deleted)
    await asyncio.gather(
        *(_delete(admin, group, outcome) for group in deleted),
        *(
            _alter(admin, group, changes, outcome)
            for group, changes in by_group(needed).items()
            if group not in deleted
        ),
    )
    # A request without an answer may have been done, so its undo file stays.
    if outcome.undo_file is not None and not outcome.has_changed and not outcome.is_unclear:
        outcome.undo_file.unlink()  # it would put back what is there
        outcome.undo_file = None


def _prepare_undo(
    chosen: argparse.Namespace, command: str, change_id: str, needed: Sequence[OffsetChange]
) -> Path:
    now_ms = time.time_ns() // 1_000_000
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms // 1000))
    path: Path = chosen.undo_file or Path(f"barnabas-undo-{stamp}-{change_id}.json")
    write_undo_file(path, change_id=change_id, command=command, time_ms=now_ms, changes=needed)
    return path


async def _delete(admin: Admin, group: str, outcome: ChangeResult) -> None:
    try:
        code = await admin.delete_group(group)
        is_left = not code and (await admin.describe_group(group)).exists
    except KafkaError as error:
        outcome.group_errors[group] = str(error)
        outcome.is_unclear |= not is_refusal(error.code)
        return
    if code:
        outcome.group_errors[group] = words(code)
        outcome.is_unclear |= not is_refusal(code)
    elif is_left:
        outcome.is_unclear = True
        outcome.group_errors[group] = "read again, the group is still there"


async def _alter(
    admin: Admin, group: str, changes: list[OffsetChange], outcome: ChangeResult
) -> None:
    """Apply the changes of one group and read what came of them."""
    wanted = {change.topic_partition: change.new for change in changes}
    kept = {topic_partition: new for topic_partition, new in wanted.items() if new is not None}
    forgotten = [topic_partition for topic_partition, new in wanted.items() if new is None]
    try:
        if group in outcome.plan.evicted:
            eviction = await evict_and_alter(admin, group, kept, forgotten, "offsets are reset")
            codes, found = eviction.codes, eviction.found
        else:
            codes = await admin.alter_offsets(group, kept)
            codes |= await admin.delete_offsets(group, forgotten)
            # Read again: an acknowledged commit is no proof, for a consumer without membership may
            # have committed right behind it.
            found = await admin.committed_offsets(group)
        unstable = set(await admin.unstable_offsets(group, wanted))
    except KafkaError as error:
        why = words(error.code) if error.code in _WORDS else str(error)
        outcome.errors.update(((group, topic_partition), why) for topic_partition in wanted)
        outcome.is_unclear = True  # the answer to one of three requests
        return
    is_live = group in outcome.plan.evicted
    for topic_partition, new in wanted.items():
        code = codes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code:
            outcome.fail((group, topic_partition), code)
        elif not _is_as_planned(found.get(topic_partition), new, is_live=is_live):
            outcome.errors[group, topic_partition] = _not_verified(found.get(topic_partition), new)
            outcome.is_unclear = True
        elif topic_partition in unstable:
            outcome.errors[group, topic_partition] = (
                "read again, an open transaction has an offset of it: which one will stay is open"
            )
            outcome.is_unclear = True
    if group in outcome.plan.evicted and not any(group == failed for failed, _ in outcome.errors):
        await _watch_return(admin, group, changes, outcome)


async def _watch_return(
    admin: Admin, group: str, changes: Sequence[OffsetChange], outcome: ChangeResult
) -> None:
    """Its offsets are set by now: that members cannot be looked at is told, and no failure."""
    try:
        said = await watch_return(admin, group, changes, outcome.plan.evicted[group])
    except KafkaError as error:
        said = f"whether the members are back is not known: {error}"
    outcome.returned[group] = said


def _is_as_planned(found: Committed | None, new: Committed | None, *, is_live: bool) -> bool:
    """Members may have read on from there: the first change by hand is answered late.

    Its answer waits for the audit topic, which is made then; members are back meanwhile.
    """
    here, there = offset_of(found), offset_of(new)
    return here == there or (is_live and here is not None and there is not None and here > there)


def _not_verified(found: Committed | None, wanted: Committed | None) -> str:
    here = "no offset" if found is None else str(found.offset)
    there = "none" if wanted is None else str(wanted.offset)
    return f"read again, the group has {here} instead of {there}"


def is_refusal(code: ErrorCode) -> bool:
    """The answer says that nothing was done, not that it is unknown."""
    return code in _WORDS or not (code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR)


def words(code: ErrorCode) -> str:
    """What is said for a code."""
    return _WORDS.get(code, code.name)
