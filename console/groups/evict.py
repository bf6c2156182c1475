"""A reset of a group that has members: they are taken out, and come back to the new offsets.

What a plan says of it, and what is looked at once they are back. Source: docs/spec/console.md §2.4.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import GroupDescription

from .plan import OffsetChange, activity, offset_of

BACK_WITHIN_S: Final = 15.0
"""Consumers hear of it at a heartbeat, every three seconds by default."""
_PAUSE_S: Final = 0.25
_CONSUMERS: Final = ("consumer", "")
_NAMED_MOST: Final = 5


def add_evict_option(parser: argparse.ArgumentParser) -> None:
    """Whether members are in the way."""
    parser.add_argument(
        "--evict", action="store_true",
        help="also groups that have members: they are taken out, join again, and go on at the new "
        "offsets",
    )  # fmt: skip


def refusal_of(group: GroupDescription, chosen: argparse.Namespace) -> str | None:
    """Why the offsets of ``group`` may not be set: members, unless they are to be taken out."""
    why = activity(group)
    if why is None or not is_wanted(chosen):
        return why
    if group.protocol_type not in _CONSUMERS:
        return (
            f"The members of group '{group.group}' are no consumers but {group.protocol_type}: "
            "they cannot be taken out from here."
        )
    return None


def is_wanted(chosen: argparse.Namespace) -> bool:
    """Whether members are to be taken out (``--evict``)."""
    return bool(getattr(chosen, "evict", False))


def evicted_of(group: GroupDescription, chosen: argparse.Namespace) -> dict[str, int]:
    """How many members are taken out, by group; nothing where there are none."""
    has_members = is_wanted(chosen) and activity(group) is not None
    return {group.group: len(group.members)} if has_members else {}


def warning(group: str, count: int) -> str:
    """What has to be known before."""
    members = "1 member" if count == 1 else f"{count} members"
    return (
        f"Takes {members} out of group '{group}': they hear of it at their next heartbeat, join "
        "again and go on at the new offsets. Work that they have in hand is done twice, a commit "
        "that is under way fails, and consumers that assign() partitions themselves are not "
        "stopped."
    )


async def watch_return(
    admin: Admin,
    group: str,
    changes: Sequence[OffsetChange],
    count: int,
    within_s: float = BACK_WITHIN_S,
) -> str:
    """What is to be said once the members are back, or are not. Raises KafkaError."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while True:
        described = await admin.describe_group(group)
        if described.state == "Stable" and len(described.members) >= count:
            break
        if loop.time() > end:
            return (
                f"{len(described.members)} of {count} members are back within {within_s:.0f} s; "
                f"the group is {described.state}."
            )
        await asyncio.sleep(_PAUSE_S)
    stayed = await _stayed(admin, group, changes)
    if not stayed:
        return f"All {count} members are back, and go on at the new offsets."
    return (
        f"All {count} members are back; {', '.join(stayed)} stand where they stood before: either "
        "they have read so far again, or a member has not taken the new offset."
    )


async def _stayed(admin: Admin, group: str, changes: Sequence[OffsetChange]) -> list[str]:
    """Partitions that are on the old side of what was set."""
    found = await admin.committed_offsets(group)
    stayed = []
    for change in changes:
        old, new, now = map(offset_of, (change.old, change.new, found.get(change.topic_partition)))
        if old is None or new is None or now is None:
            continue
        if (new < old and now >= old) or (new > old and now < new):
            place = change.topic_partition
            stayed.append(f"{place.topic}-{place.partition} (at {now})")
    return stayed[:_NAMED_MOST]
