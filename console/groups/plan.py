"""What a command is about to change in groups: each offset before and after, and what is refused.

Pure. Source: docs/spec/users.md §7, wish 7 (plan, diff, apply, verify) and §2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.admin.descriptions import Committed, GroupDescription
from barnabas.client.cluster import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """One offset of one group; None where there is none, before or after."""

    group: str
    topic_partition: TopicPartition
    old: Committed | None
    new: Committed | None
    warning: str | None = None
    """Why the new offset is another than was asked for."""

    @property
    def is_needed(self) -> bool:
        """Whether the offset differs: what is there already is not written again."""
        return offset_of(self.old) != offset_of(self.new)

    @property
    def effect(self) -> tuple[str, int | None]:
        """What it means for the group, and how many offsets it is about, where that counts."""
        old, new = offset_of(self.old), offset_of(self.new)
        if old == new:
            return "same", None
        if new is None:
            return "forget", None
        if old is None:
            return "new", None
        return ("replay", old - new) if new < old else ("skip", new - old)

    @property
    def sort_key(self) -> tuple[str, TopicPartition]:
        """The order in which changes are shown."""
        return self.group, self.topic_partition


@dataclass(slots=True, kw_only=True)
class ChangePlan:
    """All changes of one command.

    ``refusals`` says by group why nothing of it is changed; of ``deleted`` groups nothing stays.
    """

    changes: list[OffsetChange] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    evicted: dict[str, int] = field(default_factory=dict)
    """How many members are taken out first, of groups that have some."""
    notes: list[str] = field(default_factory=list)
    """What the reader should know besides."""

    def __post_init__(self) -> None:
        self.changes.sort(key=lambda change: change.sort_key)

    @classmethod
    def of(cls, parts: Iterable[ChangePlan]) -> ChangePlan:
        """One plan of several, each about other groups."""
        whole = list(parts)
        return cls(
            changes=[change for part in whole for change in part.changes],
            refusals={group: why for part in whole for group, why in part.refusals.items()},
            deleted=[group for part in whole for group in part.deleted],
            evicted={group: count for part in whole for group, count in part.evicted.items()},
            notes=[note for part in whole for note in part.notes],
        )

    def without(self, unstable: Mapping[str, str]) -> ChangePlan:
        """The plan less these groups, each with why nothing of it is changed."""
        return ChangePlan(
            changes=[change for change in self.changes if change.group not in unstable],
            refusals={**self.refusals, **unstable},
            deleted=[group for group in self.deleted if group not in unstable],
            evicted={
                group: count for group, count in self.evicted.items() if group not in unstable
            },
            notes=self.notes,
        )

    @property
    def needed(self) -> list[OffsetChange]:
        """The changes that would change something.

        All of a group that reads on meanwhile: what is as planned now may not be so any more when
        its members are out.
        """
        return [
            change
            for change in self.changes
            if change.is_needed or (change.group in self.evicted and change.new is not None)
        ]


GroupPartition = tuple[str, TopicPartition]
"""A partition of a group."""


def offset_of(committed: Committed | None) -> int | None:
    """The number, if there is one."""
    return None if committed is None else committed.offset


def in_range(
    topic_partition: TopicPartition, wanted: int, start: int, end: int
) -> tuple[int, str | None]:
    """``wanted`` within the log, and Kafka's warning when it was not."""
    name = f"{topic_partition.topic}-{topic_partition.partition}"
    if wanted > end:
        return end, (
            f"New offset ({wanted}) is higher than latest offset for topic partition {name}. "
            f"Value will be set to {end}"
        )
    if wanted < start:
        return start, (
            f"New offset ({wanted}) is lower than earliest offset for topic partition {name}. "
            f"Value will be set to {start}"
        )
    return wanted, None


def changes_to(
    group: str,
    committed: Mapping[TopicPartition, Committed],
    targets: Mapping[TopicPartition, Committed | None],
    warnings: Mapping[TopicPartition, str] | None = None,
) -> list[OffsetChange]:
    """From what a group has committed to ``targets``; None forgets an offset."""
    return [
        OffsetChange(
            group=group,
            topic_partition=topic_partition,
            old=committed.get(topic_partition),
            new=new,
            warning=(warnings or {}).get(topic_partition),
        )
        for topic_partition, new in targets.items()
    ]


def activity(group: GroupDescription) -> str | None:
    """Why the offsets of ``group`` may not be set: it has members, and who they are."""
    if group.state in ("Empty", "Dead"):
        return None
    members = ", ".join(
        f"{member.member_id} at {member.host}" for member in group.members[:_NAMED_MOST]
    )
    more = len(group.members) - _NAMED_MOST
    return (
        f"Assignments can only be reset if the group '{group.group}' is inactive, "
        f"but the current state is {group.state}. Members: {members or 'none yet'}"
        + (f" and {more} more" if more > 0 else "")
    )


_NAMED_MOST = 3


def held_by_transactions(group: str, unstable: Sequence[TopicPartition]) -> str | None:
    """Why the offsets of ``group`` may not be set, or copied: transactions have staged others.

    None where nothing is staged. What is written now would be replaced when one of them commits,
    or would silently replace what it commits.
    """
    if not unstable:
        return None
    named = ", ".join(f"{place.topic}-{place.partition}" for place in unstable[:_NAMED_MOST])
    more = len(unstable) - _NAMED_MOST
    return (
        f"Consumer group '{group}' has offsets in an open transaction: {named}"
        + (f" and {more} more" if more > 0 else "")
        + ". Wait for its end, or stop its producer (`barnabas transactions list`)."
    )


def missing(group: str) -> str:
    """What is said of a group that nobody ever used."""
    return f"Consumer group '{group}' does not exist."


def undoing(
    done: Sequence[OffsetChange], committed: Mapping[str, Mapping[TopicPartition, Committed]]
) -> tuple[list[OffsetChange], list[OffsetChange]]:
    """The way back from changes that were made, and those whose offset moved on since.

    The latter have as ``new`` what the change had left. An offset that is back already stays.
    """
    back: list[OffsetChange] = []
    moved: list[OffsetChange] = []
    for change in done:
        now = committed[change.group].get(change.topic_partition)
        way = OffsetChange(
            group=change.group, topic_partition=change.topic_partition, old=now, new=change.old
        )
        back.append(way)
        # Neither where it was nor where the change left it: somebody committed since, and going
        # back would read those records again.
        if way.is_needed and offset_of(now) != offset_of(change.new):
            moved.append(
                OffsetChange(
                    group=change.group,
                    topic_partition=change.topic_partition,
                    old=now,
                    new=change.new,
                )
            )
    return back, moved


def as_json(change: OffsetChange, error: str | None = None) -> dict[str, Any]:
    """One change for programs."""
    effect, count = change.effect
    return {
        "group": change.group,
        "topic": change.topic_partition.topic,
        "partition": change.topic_partition.partition,
        "current_offset": offset_of(change.old),
        "new_offset": offset_of(change.new),
        "effect": effect,
        "records": count,
        "warning": change.warning,
        "error": error,
    }


def by_group(changes: Iterable[OffsetChange]) -> dict[str, list[OffsetChange]]:
    """The changes of each group, in their order."""
    groups: dict[str, list[OffsetChange]] = {}
    for change in changes:
        groups.setdefault(change.group, []).append(change)
    return groups
