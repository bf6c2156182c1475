"""What a node tells in ``__barnabas_events`` and, of administrators, in ``__barnabas_audit``.

Only with ``events.topic.enable``. Source: docs/spec/console.md §2.2 (E, A).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from barnabas.broker.controller.auto_topic_creation import AutoTopicCreation
from barnabas.broker.controller.failovers import Failovers
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.isr import IsrManager
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.audit_log import AuditLog
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.storage.log_manager import LogManager
from barnabas.client.connection.connection import Connection
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.events_topic import EVENTS_TOPIC, EventKind

from .audit_topic_writer import AuditTopicWriter
from .change_records import ChangeRecords
from .cluster_events import FOLD_S, ClusterEvents
from .topic_journal import TopicJournal

LOOK_S: Final = FOLD_S
"""How often leases and in-sync sets are looked at: nobody is told when one of them is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSources:
    """The parts of a node that something happens to."""

    replicas: ReplicaManager
    isr_manager: IsrManager
    logs: LogManager
    topic_configs: TopicConfigs
    group_configs: GroupConfigs
    node_configs: DynamicNodeConfig
    groups: GroupCoordinator
    liveness: Liveness
    failovers: Failovers
    audit: AuditLog


class EventTopics:
    """Two journals, and who notes something in them; run it, stop it, close it."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        creation: AutoTopicCreation,
        *,
        dial: Callable[[str, int], Awaitable[Connection]],
        locate: Callable[[int], tuple[str, int] | None],
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._writers = {
            topic: AuditTopicWriter(
                metadata,
                create=creation.ask,
                dial=dial,
                locate=locate,
                now_ms=now_ms,
                topic=topic,
            )
            for topic in (EVENTS_TOPIC, AUDIT_TOPIC)
        }
        self.journals = {
            topic: TopicJournal(writer, topic) for topic, writer in self._writers.items()
        }
        """By topic; what was written and what was lost is told by metrics."""
        self.events = ClusterEvents(self.journals[EVENTS_TOPIC], node_id, now_ms)
        self._changes = ChangeRecords(self.journals[AUDIT_TOPIC], now_ms, rng)
        self._sources: EventSources | None = None

    def listen(self, sources: EventSources) -> None:
        """Be told of what happens from now on."""
        self._sources, events = sources, self.events
        sources.replicas.on_elected.append(events.elected)
        sources.replicas.on_resigned.append(events.resigned)
        sources.logs.offline.append(events.directory_failed)
        sources.topic_configs.on_change.append(events.topic_settings_changed)
        sources.group_configs.on_change.append(events.group_settings_changed)
        sources.node_configs.on_change.append(events.node_settings_changed)
        sources.groups.on_loaded.append(events.loaded)
        sources.failovers.on_failover.append(events.failed_over)
        sources.failovers.on_rule.append(events.ruling)
        sources.failovers.on_join.append(events.joined)
        sources.audit.on_changed.append(self._changes.note)

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for topic, journal in self.journals.items():
                tasks.create_task(journal.run(), name=f"journal of {topic}")
            tasks.create_task(self._watch(), name="leases and in-sync sets")

    async def stop(self) -> None:
        """Say that this node stops, and wait a little until all that it has said is written."""
        self.events.flush()
        self.events.note(EventKind.NODE_STOPPING)
        async with asyncio.TaskGroup() as tasks:
            for journal in self.journals.values():
                tasks.create_task(journal.drain())

    async def close(self) -> None:
        """Write nothing any more."""
        self.events.close()
        for writer in self._writers.values():
            await writer.close()

    async def _watch(self) -> None:
        assert self._sources is not None, "listens"
        sets, lease = self._sources.isr_manager, self._sources.liveness.lease
        counts, losses, held = (sets.shrinks, sets.expands), _losses(lease), True
        while True:
            await asyncio.sleep(LOOK_S)
            before, counts = counts, (sets.shrinks, sets.expands)
            if counts != before:
                shrunk, expanded = (now - then for now, then in zip(counts, before, strict=True))
                self.events.note(EventKind.IN_SYNC_CHANGED, shrunk=shrunk, expanded=expanded)
            if _losses(lease) != losses:
                losses, held = _losses(lease), False
                self.events.note(EventKind.LEASE_LOST, losses=losses)
            if not held and lease.holds():
                held = True
                self.events.note(EventKind.LEASE_REGAINED)


def _losses(lease: object) -> int:
    return lease.losses if isinstance(lease, TimedLease) else 0
