"""Notes what happens to this node, and to the cluster where it is controller, as events.

What comes in crowds is folded: changes of roles make one event a second, with counts and some
names. Nothing here waits. Source: docs/spec/console.md §2.2 (E).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.broker.controller.failovers import Failover
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.events_topic import ClusterEvent, EventKind, event_key, event_value

from .topic_journal import TopicJournal

FOLD_S: Final = 1.0
"""Changes of roles within this time are one event."""
NAMES_MAX: Final = 20
"""Topics that one event names; of offsets partitions it names all."""


class ClusterEvents:
    """The events of one node."""

    def __init__(self, journal: TopicJournal, node_id: int, now_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._node_id = node_id
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._roles: Counter[str] = Counter()
        self._offsets: dict[str, list[int]] = {"elected": [], "resigned": []}
        self._topics: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, kind: EventKind, **fields: Any) -> None:
        """Something happened now."""
        event = ClusterEvent(
            time_ms=self._now_ms(), node=self._node_id, event=kind.value, fields=fields
        )
        self._journal.add(event_key(self._node_id), event_value(event))

    # -- what others call back ---------------------------------------------------------------------

    def failed_over(self, failover: Failover) -> None:
        """This node, as controller, had others lead what a lost one led."""
        self.note(
            EventKind.FAILOVER,
            lost=failover.node,
            cause=failover.cause.value,
            noticed_s=_rounded(failover.noticed_s),
            elected_s=_rounded(failover.elected_s),
            partitions=failover.partitions,
            leaderless=failover.leaderless,
        )

    def ruling(self, epoch: int, nodes: Sequence[int]) -> None:
        """This node was elected controller."""
        self.note(EventKind.CONTROLLER_ELECTED, epoch=epoch, nodes=list(nodes))

    def joined(self, nodes: Sequence[int]) -> None:
        """This node, as controller, saw others register."""
        self.note(EventKind.NODE_JOINED, nodes=list(nodes))

    def loaded(
        self, partition: int, *, epoch: int, seconds: float, is_warm: bool, size: int
    ) -> None:
        """This node coordinates the groups of an offsets partition from now on."""
        self.note(
            EventKind.OFFSETS_LOADED,
            partition=partition,
            epoch=epoch,
            load_s=_rounded(seconds),
            standby=is_warm,
            groups=size,
        )

    def elected(self, topic: str, index: int, epoch: int) -> None:
        """This node leads a partition from now on."""
        del epoch
        self._role("elected", topic, index)

    def resigned(self, topic: str, index: int, epoch: int | None) -> None:
        """It does not any more, or the replica is gone."""
        del epoch
        self._role("resigned", topic, index)

    def directory_failed(self, path: Path, partitions: Sequence[tuple[str, int]]) -> None:
        """A log directory is gone."""
        self.note(EventKind.DIRECTORY_FAILED, directory=str(path), partitions=len(partitions))

    def topic_settings_changed(self, topic: str) -> None:
        """The overrides of a topic are others."""
        self.note(EventKind.SETTINGS_CHANGED, topic=topic)

    def group_settings_changed(self, group: str) -> None:
        """The settings of a group are others."""
        self.note(EventKind.SETTINGS_CHANGED, group=group)

    def node_settings_changed(self) -> None:
        """The dynamic settings of this node are others."""
        self.note(EventKind.SETTINGS_CHANGED, of_node=self._node_id)

    # -- folding -----------------------------------------------------------------------------------

    def _role(self, what: str, topic: str, index: int) -> None:
        self._roles[what] += 1
        if topic == OFFSETS_TOPIC:
            self._offsets[what].append(index)
        if len(self._topics) < NAMES_MAX:
            self._topics[topic] = None
        if self._timer is None:
            self._timer = self._loop.call_later(FOLD_S, self.flush)

    def flush(self) -> None:
        """Tell what was folded."""
        self.close()
        if self._roles:
            offsets = {f"offsets_{what}": sorted(set(all_)) for what, all_ in self._offsets.items()}
            self.note(EventKind.ROLES_CHANGED, **self._roles, **offsets, topics=list(self._topics))
        self._roles.clear()
        self._topics.clear()
        for places in self._offsets.values():
            places.clear()

    def close(self) -> None:
        """Leave no timer behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
