"""Automatic topic creation: topics that somebody asked for are created in the background.

Source: docs/spec/cluster.md §2.9; docs/spec/transactions.md §1.1. Whoever asked is told to
come back, never made to wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.coordinator.transactions.config import TransactionConfig
from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.events_topic import EVENTS_TOPIC

from .create_topics import KnownCluster, RequestedTopic, TopicCreator

log = logging.getLogger(__name__)

WAITING_MAX: Final = 1000
"""Beyond so many a wish is dropped: whoever has it asks again."""
AUDIT_PARTITIONS: Final = 3
"""Changes by hand are few; a group's are in one partition."""
EVENTS_PARTITIONS: Final = 3
EVENTS_KEPT_MS: Final = 7 * 24 * 3_600_000
TOLD_S: Final = 10.0
"""A refusal is told for so long, unless the creation that whoever asks has tried ends otherwise."""
NODES_START_S: Final = 5.0
"""A factor above the number of nodes is told only when it is refused for so long.

Nodes that are started together do not come together, and librdkafka gives up its records at once.
"""
SAFE_FACTOR: Final = 3
"""From here a commit is on two disks before it is acknowledged, whatever fails meanwhile."""


@dataclass(slots=True)
class _Refusal:
    """Why a topic could not be created, and when that was found first and last."""

    code: ErrorCode
    reason: str
    first: float
    last: float
    is_logged: bool = False

    def may_pass(self, now: float) -> bool:
        """Whether nodes that lack may still come by themselves."""
        is_for_nodes = self.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return is_for_nodes and now - self.first < NODES_START_S


class AutoTopicCreation:
    """One topic after the other; a name that waits already is not queued again."""

    def __init__(
        self,
        writer: TopicCreator,
        coordinator: CoordinatorConfig,
        transactions: TransactionConfig,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``now`` gives seconds."""
        self._now = now
        self._writer = writer
        self._coordinator = coordinator
        self._transactions = transactions
        self._names: deque[str] = deque()
        self._filled = asyncio.Event()
        self._refusals: dict[str, _Refusal] = {}

    def ask(self, name: str) -> bool:
        """Have a topic created soon, with the node's defaults; the name must be a valid one.

        False where nothing comes of it, or it was asked for already.
        """
        if len(self._names) >= WAITING_MAX or name in self._names:
            return False
        self._names.append(name)
        self._filled.set()
        return True

    def answer(self, name: str) -> ErrorCode:
        """What is answered for a topic that was asked for: 5, or what its creation failed with."""
        refusal = self._refusals.get(name)
        now = self._now()
        if refusal is None or now - refusal.last > TOLD_S:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.LEADER_NOT_AVAILABLE if refusal.may_pass(now) else refusal.code

    async def run(self) -> None:
        """Create what is asked for, until cancelled."""
        while True:
            while not self._names:
                self._filled.clear()
                await self._filled.wait()
            known = self._writer.known_cluster()
            for _ in range(len(self._names)):
                await self._create(self._names[0], known)
                self._names.popleft()

    async def _create(self, name: str, known: KnownCluster) -> None:
        try:
            plan = await self._writer.plan(self._wish(name), known)
            await self._writer.create(plan, known)
        except Refused as refusal:
            if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                self._note(name, refusal)
        except ZooKeeperError as error:
            log.warning("could not create a topic topic=%s: %r", name, error)
        else:
            self._refusals.pop(name, None)
            log.info("created a topic on demand topic=%s", name)

    def _note(self, name: str, refused: Refused) -> None:
        """For who asks again; the log says it once, since clients ask ten times a second."""
        now, reason = self._now(), str(refused)
        refusal = self._refusals.pop(name, None)
        if refusal is None or refusal.reason != reason:
            refusal = _Refusal(refused.code, reason, first=now, last=now)
        elif now - refusal.last > TOLD_S:
            refusal.first = now
        refusal.last = now
        if len(self._refusals) >= WAITING_MAX:
            del self._refusals[next(iter(self._refusals))]  # what was refused longest ago
        self._refusals[name] = refusal
        if not refusal.is_logged and not refusal.may_pass(now):
            refusal.is_logged = True
            log.error("cannot create a topic topic=%s: %s", name, reason)

    def _wish(self, name: str) -> RequestedTopic:
        if name == AUDIT_TOPIC:
            return self._kept_safe(name, AUDIT_PARTITIONS, {"cleanup.policy": "delete"})
        if name == EVENTS_TOPIC:
            kept = {"cleanup.policy": "delete", "retention.ms": str(EVENTS_KEPT_MS)}
            return self._kept_safe(name, EVENTS_PARTITIONS, kept)
        if name == TRANSACTION_TOPIC:
            return self._transaction_log()
        if name != OFFSETS_TOPIC:
            return RequestedTopic(name=name)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._coordinator.offsets_segment_bytes),
        }
        return self._kept_safe(name, self._coordinator.offsets_partitions, configs)

    def _transaction_log(self) -> RequestedTopic:
        """An unclean election would take back a commit that was answered; so would one replica."""
        wanted = self._transactions
        return RequestedTopic(
            name=TRANSACTION_TOPIC,
            partitions=wanted.log_partitions,
            factor=wanted.log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(wanted.log_min_isr),
                "segment.bytes": str(wanted.log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )

    def _kept_safe(self, name: str, partitions: int, configs: dict[str, str]) -> RequestedTopic:
        factor = self._coordinator.offsets_replication_factor
        if factor >= SAFE_FACTOR:
            configs["min.insync.replicas"] = "2"
        return RequestedTopic(name=name, partitions=partitions, factor=factor, configs=configs)
