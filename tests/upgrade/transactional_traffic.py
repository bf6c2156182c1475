"""A client that wants transactions from a cluster whose nodes are of two releases.

It knows nothing of releases: after each move it asks every node for the coordinator of its
transactional ids, and runs a transaction as far as it gets. While an older node is there it may be
refused, or be left waiting; what it was told must hold, and when the last one is gone everything
must work, what was begun before included. Nobody else must notice.
Source: docs/operations.md, "Upgrading"; docs/spec/transactions.md §7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client import (
    Admin,
    GroupMetadata,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import AbortableTransactionError
from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.errors import ErrorCode
from tests.chaos.committed_reader import final_logs
from tests.harness.raw_calls import find_transaction_coordinator
from tests.harness.raw_connection import RawConnection
from tests.transactions.history import Outcome

from .rolling import MixedNode

TOPIC: Final = "in-transactions"
PARTITIONS: Final = 6
"""Each node leads some."""
IDS: Final = ("upgraded-1", "upgraded-2", "upgraded-3")
COPIER: Final = IDS[0]
"""This one commits offsets of a group of its name, too."""
CHECKOUT: Final = "checkout"
MIXED_S: Final = 15.0
"""So long a transaction may take while nobody promises anything."""
WORKING_S: Final = 90.0
SETTINGS: Final = {
    "transaction.timeout.ms": "10000",
    "request.timeout.ms": "3000",
    "delivery.timeout.ms": "10000",
}


@dataclass(slots=True)
class TransactionalTraffic:
    """What it was told, move by move."""

    codes: dict[str, set[str]] = field(default_factory=dict)
    """By the releases that were there: what FindCoordinator answered."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By the name of each transaction."""
    findings: list[str] = field(default_factory=list)
    is_whole: int = 0
    """So often all nodes were of the checkout, and everything worked."""

    def moved(self, nodes: Sequence[MixedNode]) -> None:
        """A node has changed: try everything once."""
        releases = ",".join(sorted({node.release for node in nodes}))
        bootstrap = ",".join(f"{LOOPBACK}:{node.port}" for node in nodes)
        if releases == CHECKOUT:
            asyncio.run(self._all_works(bootstrap))
            self.is_whole += 1
        else:
            asyncio.run(self._what_works(bootstrap))
        told = self.codes.setdefault(releases, set())
        for node in nodes:
            with RawConnection((LOOPBACK, node.port)) as link:
                codes = {find_transaction_coordinator(link, name).error for name in IDS}
            told |= {ErrorCode(code).name for code in codes}  # type: ignore[call-arg]

    async def _what_works(self, bootstrap: str) -> None:
        """One transaction of each id, as far as it gets."""
        await create(bootstrap)
        await asyncio.gather(*(self._try(bootstrap, name) for name in IDS))

    async def _try(self, bootstrap: str, name: str) -> None:
        number = len(self.outcomes)
        transaction = f"{name}/{number}"
        self.outcomes[transaction] = Outcome.ABORTED
        try:
            async with asyncio.timeout(MIXED_S):
                await self._transact(bootstrap, name, number)
        except (KafkaError, TimeoutError):
            return  # refused, or left waiting: as far as it got, it stands

    async def _transact(self, bootstrap: str, name: str, number: int) -> None:
        transaction = f"{name}/{number}"
        async with Producer(bootstrap, SETTINGS, transactional_id=name) as producer:
            producer.begin()
            try:
                for partition in range(PARTITIONS):
                    value = transaction.encode()
                    producer.send_soon(TOPIC, value, partition=partition)
                await producer.flush()
                if name == COPIER:
                    offsets = {TopicPartition(TOPIC, 0): number}
                    await producer.send_offsets(GroupMetadata(name), offsets)
                self.outcomes[transaction] = Outcome.UNKNOWN
                await producer.commit()
                self.outcomes[transaction] = Outcome.COMMITTED
            except AbortableTransactionError:
                await producer.abort()
                self.outcomes[transaction] = Outcome.ABORTED

    async def _all_works(self, bootstrap: str) -> None:
        """Each id commits, and readers are shown all that was ever committed, and nothing else."""
        await create(bootstrap)
        async with asyncio.timeout(WORKING_S):
            await asyncio.gather(*(self._insist(bootstrap, name) for name in IDS))
            async with Admin.of(bootstrap, ClientConfig(request_timeout_ms=5_000)) as admin:
                logs = await final_logs(admin.cluster, {TOPIC: PARTITIONS})
                while any(log.last_stable < log.end for log in logs.values()):
                    await asyncio.sleep(0.5)
                    logs = await final_logs(admin.cluster, {TOPIC: PARTITIONS})
                offsets = await admin.committed_offsets(COPIER)
        told = offsets[TopicPartition(TOPIC, 0)].offset
        if f"{COPIER}/{told}" != self._last(COPIER):
            self.findings.append(f"{COPIER} is at {told}, after {self._last(COPIER)}")
        rows = [[row.origin for row in log.committed] for log in logs.values()]
        for name, outcome in self.outcomes.items():
            counts = {shown.count(name) for shown in rows}
            if outcome is Outcome.UNKNOWN and counts in ({0}, {1}):
                continue
            if counts != {int(outcome is Outcome.COMMITTED)}:
                self.findings.append(f"{name} was {outcome.value}, and is there {counts} times")

    async def _insist(self, bootstrap: str, name: str) -> None:
        """Try until it is committed."""
        while True:
            await self._try(bootstrap, name)
            if self.outcomes[self._last(name)] is Outcome.COMMITTED:
                return

    def _last(self, name: str) -> str:
        return [one for one in self.outcomes if one.startswith(f"{name}/")][-1]


async def create(bootstrap: str) -> None:
    """The topic, unless it is there."""
    async with Admin.of(bootstrap) as admin:
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        await admin.create_topics([topic], exist_ok=True)
