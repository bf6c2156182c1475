"""Producers that write transactions on a simulated cluster, and what they were told.

Each writes one record to every partition of a few topics' partitions in each transaction, and ends
it. It does what Kafka's clients do about every code: retries what may pass, and after anything else
asks for a new epoch, which aborts what it had open.
Source: docs/spec/transactions.md §2.4 to §2.6 and §7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.sim.cluster import Cluster
from tests.sim.transactional_client import PAUSE_S, GaveUp, Lookups, TransactionalClient


class Outcome(Enum):
    """What is known of the end of a transaction."""

    OPEN = "its end was never asked for: it must be aborted"
    UNKNOWN = "its commit was asked for and never answered"
    COMMITTED = "its commit was answered with NONE"
    ABORTED = "its abort was answered with NONE"


@dataclass
class Transaction:
    """One transaction of one producer."""

    name: bytes
    """The value of each of its records."""
    producer_id: int
    producer_epoch: int
    partitions: Sequence[tuple[str, int]]
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    """Partitions in which its record was acknowledged, and the offset."""
    outcome: Outcome = Outcome.OPEN


class TransactionalProducer(TransactionalClient):
    """One transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        partitions: Sequence[tuple[str, int]],
        lookups: Lookups | None = None,
        rest_s: float = 0.0,
    ) -> None:
        """It rests for up to ``rest_s`` after each transaction."""
        super().__init__(cluster, transactional_id, lookups or Lookups(cluster))
        self.transactions: list[Transaction] = []
        self._partitions = partitions
        self._rest_s = rest_s

    async def run(self) -> None:
        """One transaction after the other, until cancelled."""
        while True:
            try:
                await self.begin_anew()
                while True:
                    await self._transact()
                    if self._rest_s:
                        await asyncio.sleep(self._cluster.loop.random.uniform(0, self._rest_s))
            except GaveUp:
                await asyncio.sleep(PAUSE_S)

    async def _transact(self) -> None:
        rng = self._cluster.loop.random
        chosen = rng.sample(self._partitions, rng.randint(1, len(self._partitions)))
        name = f"{self._id}/{len(self.transactions)}".encode()
        now = Transaction(name, self._producer_id, self._epoch, chosen)
        self.transactions.append(now)
        await self._add(chosen)
        for partition in chosen:
            now.written[partition] = await self._write(partition, name)
            await asyncio.sleep(rng.uniform(0, 0.03))
        is_commit = rng.random() < 0.7
        if is_commit:
            now.outcome = Outcome.UNKNOWN
        await self._finish(is_commit=is_commit)
        now.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
