"""How groups stand: lag in records and seconds, the verdict, and the reason for it.

The figures are those of ``barnabas groups lag``. Source: docs/spec/users.md §3;
docs/spec/console.md §1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.bulk_group_admin import BulkGroupAdmin
from barnabas.client.admin.commit_history import History
from barnabas.client.admin.descriptions import GroupDescription
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.turns import Turns
from barnabas.console.groups.partition_lags import (
    GroupLag,
    PartitionLag,
    lags_of_groups,
    partition_lags,
)
from barnabas.console.groups.unread_times import UnreadTimes
from barnabas.coordinator.group_health import Verdict, evaluate_group

from .reading import now_ms

REASONS: Final[Mapping[Verdict, str]] = {
    Verdict.WARN: "reads, but its lag only grows",
    Verdict.STOP: "commits no longer",
    Verdict.STALL: "stays at one offset",
    Verdict.REWIND: "went back and has not caught up",
}
"""What a verdict means, said of a partition."""
NOTES: Final = {
    "below-log-start": "is below the log's start: records it never read are gone",
    "beyond-end": "is beyond the log's end: it will be reset",
}
_NAMED_MOST: Final = 2


@dataclass(frozen=True)
class Standing:
    """How one group stands; ``has_history`` is False while nothing can be said of a verdict."""

    group: GroupDescription
    partitions: Sequence[PartitionLag]
    last_commit_ms: Mapping[TopicPartition, int]
    """When the log says that each offset was committed last, where it still does."""
    at_ms: int
    has_history: bool

    @property
    def verdict(self) -> Verdict | None:
        """The worst of its partitions; None while nobody looked at its commits."""
        if not self.has_history:
            return None
        return evaluate_group(row.verdict for row in self.partitions)

    @property
    def topics(self) -> list[str]:
        """Those that it has committed or was given."""
        return sorted({row.progress.topic for row in self.partitions if row.progress.topic})

    @property
    def reason(self) -> str:
        """Why the verdict is no better, or what is odd besides; empty for a group that is well."""
        ill = sorted(self.partitions, key=lambda row: -row.verdict)
        said = [
            f"{_place(row)} {REASONS[row.verdict]}" for row in ill if row.verdict in REASONS
        ] + [f"{_place(row)} {NOTES[row.note]}" for row in self.partitions if row.note]
        more = len(said) - _NAMED_MOST
        return "; ".join(said[:_NAMED_MOST]) + (f"; and {more} more" if more > 0 else "")

    def row(self) -> dict[str, Any]:
        """The group in a list, for programs and templates."""
        lag = GroupLag(self.group, self.partitions)
        topics = self.topics
        return {
            "name": self.group.group,
            "state": self.group.state,
            "members": len(self.group.members),
            "topics": len(topics),
            "lag": lag.records,
            "seconds": lag.seconds,
            "verdict": None if self.verdict is None else self.verdict.name,
            "reason": self.reason,
            "coordinator": self.group.coordinator.id,
            "last_commit_ms": max(self.last_commit_ms.values(), default=None),
            "at_ms": self.at_ms,
        }


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list: what remains of its standing when there are 10,000 of them."""

    summary: Mapping[str, Any]
    """As :meth:`Standing.row`."""
    topics: Sequence[str]
    verdict: Verdict | None

    @classmethod
    def of(cls, standing: Standing) -> GroupRow:
        """What a list tells of it."""
        return cls(standing.row(), standing.topics, standing.verdict)

    @property
    def at_ms(self) -> int:
        """When the group stood so."""
        at_ms: int = self.summary["at_ms"]
        return at_ms


async def standing_of(admin: Admin, group: GroupDescription, history: History | None) -> Standing:
    """Ask how ``group`` stands now; a group that does not exist has no partitions.

    Raises KafkaError.
    """
    rows = await partition_lags(admin, group, history) if group.exists else []
    return _standing(group, rows, history)


async def rows_of_groups(
    admin: Admin, names: Sequence[str], histories: Mapping[str, History], unread: UnreadTimes
) -> dict[str, GroupRow | KafkaError | None]:
    """How groups stand now, asked together; None for one that does not exist. Raises KafkaError."""
    described = await BulkGroupAdmin(admin).describe(names)
    groups = [one for one in described.values() if not isinstance(one, KafkaError) and one.exists]
    lags = await lags_of_groups(admin, groups, histories, unread)
    turns = Turns()
    found: dict[str, GroupRow | KafkaError | None] = {
        name: one if isinstance(one, KafkaError) else None for name, one in described.items()
    }
    for group in groups:
        rows = lags[group.group]
        found[group.group] = (
            rows
            if isinstance(rows, KafkaError)
            else GroupRow.of(_standing(group, rows, histories.get(group.group)))
        )
        await turns.pause()
    return found


def _standing(
    group: GroupDescription, rows: Sequence[PartitionLag], history: History | None
) -> Standing:
    commits = {} if history is None else history.commits
    return Standing(
        group=group,
        partitions=rows,
        last_commit_ms={place: seen[-1].timestamp_ms for place, seen in commits.items() if seen},
        at_ms=now_ms(),
        has_history=history is not None,
    )


def _place(row: PartitionLag) -> str:
    return f"{row.progress.topic}-{row.progress.partition}"
