"""A copier around aiokafka; tests/harness/copiers.py says what it is told and answers.

aiokafka sends no generation with a transaction's offsets, and does not wait for those of others. So
every partition has a transactional id of its own, as was the way before KIP-447: a new owner takes
it over before it asks where to begin.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

AT_A_TIME = 40
POLL_MS = 50
TIMEOUT_MS = 30_000


class Copier(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of the group; a rebalance waits until no transaction is open."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._target = target
        self._group = group
        self._prefix = prefix
        self._idle = asyncio.Lock()
        self._producers: dict[Any, Any] = {}
        self._turn = 0
        self._opened: tuple[Any, int, int] | None = None
        """The partition that is copied, from where and up to where."""
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=TIMEOUT_MS,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        self._consumer.subscribe([source], listener=self)

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """Give nothing away while a transaction is open."""
        async with self._idle:
            for place in revoked:
                if producer := self._producers.pop(place, None):
                    await producer.stop()

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Take the ids over, then begin where the group says."""
        async with self._idle:
            for place in assigned:
                producer = await started(self._bootstrap, f"{self._prefix}-{place.partition}")
                committed = await self._consumer.committed(place)
                self._consumer.seek(place, committed or 0)
                self._producers[place] = producer

    async def run(self) -> None:
        """Make the steps of standard input."""
        await self._consumer.start()
        loop = asyncio.get_running_loop()
        while order := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            answer: dict[str, Any] = {"read": 0, "committed": False, "id": "", "error": ""}
            try:
                await self._step(order, answer)
            except KafkaError as failure:
                answer["error"] = repr(failure)
            answer["assigned"] = [place.partition for place in self._producers]
            sys.stdout.write(f"{json.dumps(answer)}\n")
            sys.stdout.flush()
        await self._consumer.stop()
        for producer in self._producers.values():
            await producer.stop()

    async def _step(self, order: str, answer: dict[str, Any]) -> None:
        if order != "end":
            await self._idle.acquire()
            try:
                await self._begin(answer)
            finally:
                if self._opened is None:
                    self._idle.release()
            if self._opened is None or order == "open":
                return
        assert self._opened is not None
        try:
            await self._end(order, *self._opened)
            answer["committed"] = order != "abort"
        finally:
            self._opened = None
            self._idle.release()

    async def _begin(self, answer: dict[str, Any]) -> None:
        """A transaction with what came within a moment of the partition whose turn it is."""
        if not self._producers:
            return
        place = sorted(self._producers)[self._turn % len(self._producers)]
        self._turn += 1
        polled: Mapping[Any, Sequence[Any]] = await self._consumer.getmany(
            place, timeout_ms=POLL_MS, max_records=AT_A_TIME
        )
        if not (records := polled.get(place)):
            return
        producer = self._producers[place]
        await producer.begin_transaction()
        self._opened = (place, records[0].offset, records[-1].offset + 1)
        answer |= {"read": len(records), "id": f"{self._prefix}-{place.partition}"}
        sent = [
            await producer.send(self._target, one.value, partition=one.partition) for one in records
        ]
        await asyncio.gather(*sent)

    async def _end(self, order: str, place: Any, start: int, end: int) -> None:
        producer = self._producers[place]
        if order == "abort":
            await producer.abort_transaction()
            self._consumer.seek(place, start)
            return
        at = {place: OffsetAndMetadata(end, "")}
        await producer.send_offsets_to_transaction(at, self._group)
        await producer.commit_transaction()


async def started(bootstrap: str, name: str) -> Any:
    """A producer that took its id over from whoever had it."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
    )
    await producer.start()
    return producer


async def fence(bootstrap: str, target: str, name: str) -> None:
    """Abort a transaction of its own, once it has the id."""
    producer = await started(bootstrap, name)
    await producer.begin_transaction()
    await producer.send_and_wait(target, b"fence", partition=0)
    await producer.abort_transaction()
    await producer.stop()


async def main(what: str, bootstrap: str, source: str, target: str, group: str, name: str) -> None:
    if what == "fence":
        await fence(bootstrap, target, name)
    else:
        await Copier(bootstrap, source, target, group, name).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:7]))
