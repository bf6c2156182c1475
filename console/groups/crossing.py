"""How far a group is from a barrier: one evaluation, of the command line and of the web console.

All that was acknowledged before lies below the barrier. What the log no longer has counts as read:
records below its start, gaps of compaction, markers of transactions.
Source: docs/spec/console.md §1 (barrier).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.time_lag import UnreadRange, first_unread_ms
from barnabas.client.cluster import TopicPartition

Barrier = Mapping[TopicPartition, int]


@dataclass(slots=True)
class Crossing:
    """A barrier, and how far a group is."""

    group: str
    barrier: Barrier
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    gaps: set[tuple[TopicPartition, int]] = field(default_factory=set)
    """Offsets behind which no record is left below the barrier."""
    looked_at: set[tuple[TopicPartition, int]] = field(default_factory=set)

    def position(self, place: TopicPartition) -> int:
        """Where the group goes on: at the log's start where nothing is committed, or is gone."""
        return max(self.committed.get(place, 0), self.starts.get(place, 0))

    def needs(self, place: TopicPartition) -> int:
        """How many offsets are left below the barrier; 0 when it is passed."""
        position = self.position(place)
        is_gap = (place, position) in self.gaps
        return 0 if is_gap else max(0, self.barrier[place] - position)

    @property
    def left(self) -> list[TopicPartition]:
        """The partitions that have not passed it."""
        return [place for place in self.barrier if self.needs(place)]


async def look(admin: Admin, crossing: Crossing) -> None:
    """See how far the group is; where it stays, whether there is anything left to read at all."""
    committed = await admin.committed_offsets(crossing.group)
    crossing.committed = {
        place: committed[place].offset for place in crossing.barrier if place in committed
    }
    crossing.starts = await admin.start_offsets(crossing.left)
    # Asked once for each offset: whoever reads on commits another one before the next look.
    asked = [
        place
        for place in crossing.left
        if (place, crossing.position(place)) not in crossing.looked_at
    ]
    ranges = {place: UnreadRange(crossing.position(place), crossing.barrier[place])
              for place in asked}  # fmt: skip
    for place, found_ms in (await first_unread_ms(admin.cluster, ranges)).items():
        crossing.looked_at.add((place, ranges[place].start))
        if found_ms is None:
            crossing.gaps.add((place, ranges[place].start))
