"""All topics as the last Metadata told them, with what pages count over all partitions.

Counted once for each answer, in turns, not once for each page. Source: docs/spec/console.md §5.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from barnabas.client.turns import Turns
from barnabas.protocol.messages import metadata

_serials = itertools.count()
Placement = tuple[int, Sequence[int], Sequence[int]]
"""Leader, replicas and in-sync replicas of a partition."""


class KnownTopics(dict[str, metadata.TopicResult]):
    """Topics by name, in order; nobody changes it."""

    names: Sequence[str] = ()
    plain_names: Sequence[str] = ()
    """Those that are not internal."""
    partitions: int = 0

    def __init__(self, topics: Iterable[metadata.TopicResult] = ()) -> None:
        found = sorted((topic.name, topic) for topic in topics if topic.name is not None)
        super().__init__(found)
        self.names = list(self)
        self.plain_names = [name for name, topic in found if not topic.is_internal]
        self.partitions = sum(len(topic.partitions) for topic in self.values())
        self.serial = next(_serials)
        """Another one for another answer."""
        self._placements: Counter[Placement] | None = None

    @property
    def internal(self) -> int:
        """How many topics are internal."""
        return len(self.names) - len(self.plain_names)

    async def placements(self) -> Counter[Placement]:
        """How many partitions lie where; most of a cluster's lie in one of a few ways."""
        found = self._placements
        if found is None:
            found, turns = Counter(), Turns()
            for topic in self.values():
                for part in topic.partitions:
                    found[part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes)] += 1
                await turns.pause()
            self._placements = found
        return found


async def partition_counts(topics: KnownTopics) -> dict[str, int]:
    """Partitions in all, without a leader, and with fewer in-sync replicas than replicas."""
    counts = {"partitions": 0, "leaderless": 0, "under_replicated": 0}
    for (leader, replicas, in_sync), count in (await topics.placements()).items():
        counts["partitions"] += count
        counts["leaderless"] += count * (leader < 0)
        counts["under_replicated"] += count * (len(in_sync) < len(replicas))
    return counts


async def node_counts(topics: KnownTopics) -> dict[int, dict[str, int]]:
    """By node: partitions that it leads, that it has a replica of, and that it has not in sync."""
    counts: dict[int, dict[str, int]] = {}

    def at(node: int) -> dict[str, int]:
        return counts.setdefault(node, {"leaders": 0, "replicas": 0, "out_of_sync": 0})

    for (leader, replicas, in_sync), count in (await topics.placements()).items():
        if leader >= 0:
            at(leader)["leaders"] += count
        for node in replicas:
            at(node)["replicas"] += count
            at(node)["out_of_sync"] += count * (node not in in_sync)
    return counts
