"""Copy jobs on a simulated cluster: consume, write again, commit the group's offsets, all in one.

A job is told its source partition, as Kafka Streams once told its tasks: the transactional id that
goes with the partition fences whoever had it before. Whoever gives up, dies or is taken for dead is
followed by the next instance; one that was taken for dead may wake up and go on where it was. They
write down what they do as tests/transactions/checker.py needs it.
Source: docs/spec/transactions.md §2.5, §4 and §7.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    end_txn,
    fetch,
    init_producer_id,
    offset_fetch,
    txn_offset_commit,
)
from tests.chaos.committed_reader import shown
from tests.chaos.copy_journal import target_of, value_of
from tests.sim.cluster import Cluster
from tests.sim.transactional_client import (
    GROUP,
    PAUSE_S,
    GaveUp,
    Lookups,
    Partition,
    TransactionalClient,
    one_code,
)
from tests.transactions.history import Copied, OffsetReading, Outcome, Reading, Row, Transaction

FIRST: Final = "in"
MIDDLE: Final = "mid"
LAST: Final = "out"
WIDTH: Final = 2
"""Partitions of each topic."""
STAGES: Final = {FIRST: MIDDLE, MIDDLE: LAST}
SOURCES: Final = [(topic, index) for topic in STAGES for index in range(WIDTH)]
TARGETS: Final = [(topic, index) for topic in STAGES.values() for index in range(WIDTH)]
MOST: Final = 3
"""Records in a transaction."""
REST_S: Final = 0.3
"""Between two transactions of a job, at most."""
FRESH_S: Final = 0.3
COMMITTED: Final = 1


def group_of(topic: str) -> str:
    """All jobs of a stage are of one group."""
    return f"copiers-of-{topic}"


def id_of(source: Partition) -> str:
    """The transactional id that goes with a source partition."""
    return f"copier-of-{source[0]}-{source[1]}"


def fetch_of(partition: Partition, offset: int) -> fetch.FetchRequest:
    """One Fetch of committed records that waits for nothing."""
    topic, index = partition
    wanted = fetch.Partition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 16)
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=COMMITTED,
        session_id=0,
        rack_id="",
        forgotten_topics_data=[],
        topics=[fetch.Topic(topic=topic, partitions=[wanted])],
    )


def read_of(answer: Any) -> Any:
    """The one partition of the answer to that."""
    return answer.responses[0].partitions[0]


def offsets_of(source: Partition, *, is_stable: bool) -> offset_fetch.OffsetFetchRequest:
    """OffsetFetch 7 of one partition."""
    topic, index = source
    return offset_fetch.OffsetFetchRequest(
        group_id=group_of(topic),
        topics=[offset_fetch.Topic(name=topic, partition_indexes=[index])],
        require_stable=is_stable,
    )


def offset_codes(answer: Any) -> list[int]:
    """Of the answer to that."""
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    return [answer.error_code, *codes]


class Copier(TransactionalClient):
    """One instance of a job, from its start until it gives up or is ended."""

    def __init__(self, cluster: Cluster, source: Partition, instance: int) -> None:
        super().__init__(cluster, id_of(source), Lookups(cluster, FRESH_S))
        self.transactions: list[Transaction] = []
        self.is_frozen_before_end = False
        """It will freeze when it is about to ask for the end of a transaction."""
        self._source = source
        self._instance = instance
        self._asked = 0.0
        self._initialised = 0.0
        self._going = asyncio.Event()
        self._going.set()
        self._position: int | None = None
        """Where its next transaction begins; None: the group is asked."""
        self._read_until = 0
        self._ahead: list[Row] = []

    def freeze(self) -> None:
        """As SIGSTOP."""
        self._going.clear()

    def thaw(self) -> None:
        """It goes on as if nothing had happened."""
        self.is_frozen_before_end = False
        self._going.set()

    async def run(self) -> None:
        """Copy until cancelled, or until this instance is of no more use."""
        with contextlib.suppress(GaveUp):
            await self.begin_anew()
            self._initialised = self._cluster.loop.time()
            while True:
                await self._transact()
                await asyncio.sleep(self._cluster.loop.random.uniform(0, REST_S))

    async def _ask(self, node: int, request: Any, version: int) -> Any:
        if isinstance(request, end_txn.EndTxnRequest):
            if self.is_frozen_before_end:
                self.freeze()
            await self._going.wait()
            self._note_end(request)
        await self._going.wait()
        if isinstance(request, init_producer_id.InitProducerIdRequest):
            self._asked = self._cluster.loop.time()
        answer = await super()._ask(node, request, version)
        await self._going.wait()
        return answer

    def _note_end(self, request: end_txn.EndTxnRequest) -> None:
        """From now on a commit may come to pass; before, nothing but an abort."""
        now = self.transactions[-1]
        if request.committed and now.outcome is Outcome.ABORTED:
            moment = self._cluster.loop.time()
            self.transactions[-1] = replace(now, outcome=Outcome.UNKNOWN, ending=moment)

    async def _transact(self) -> None:
        positions, rows = await self._rows()
        if not rows:
            return
        self._begin(positions, rows)
        now = self.transactions[-1]
        await self._add(dict.fromkeys(copy.target for copy in now.copies))
        for copy in now.copies:
            await self._write(copy.target, value_of(copy.row.origin, now.name))
        await self._send_offset(now.offsets[self._source])
        is_commit = self._cluster.loop.random.random() < 0.8
        await self._finish(is_commit=is_commit)
        if is_commit:
            self.transactions[-1] = replace(self.transactions[-1], outcome=Outcome.COMMITTED)
            self._position = now.offsets[self._source]
        else:
            self._position = None

    def _begin(self, positions: dict[Partition, int], rows: Sequence[Row]) -> None:
        target = STAGES[self._source[0]]
        number = len(self.transactions)
        self.transactions.append(
            Transaction(
                name=f"{self._id}.{self._instance}.{number}",
                producer=self._id,
                instance=self._instance,
                asked=self._asked,
                initialised=self._initialised,
                ending=self._cluster.loop.time(),
                outcome=Outcome.ABORTED,
                copies=[Copied(self._source, row, target_of(target, WIDTH, row)) for row in rows],
                positions=positions,
                offsets={self._source: rows[-1].offset + 1},
            )
        )

    async def _rows(self) -> tuple[dict[Partition, int], list[Row]]:
        """The next records to be copied, and where the group said to begin, if it was asked."""
        positions: dict[Partition, int] = {}
        if self._position is None:
            self._position = self._read_until = await self._committed_offset()
            self._ahead.clear()
            positions[self._source] = self._position
        if not self._ahead:
            answer = await self._retried(
                fetch_of(self._source, self._read_until),
                11,
                lambda answer: [read_of(answer).error_code],
                lambda: self._lookups.leader(self._source),
            )
            self._ahead, self._read_until = shown(read_of(answer), self._read_until)
        count = self._cluster.loop.random.randint(1, MOST)
        rows, self._ahead = self._ahead[:count], self._ahead[count:]
        if not rows:
            self._position = None  # nobody saw what was told: the next transaction is told again
        return positions, rows

    async def _committed_offset(self) -> int:
        answer = await self._retried(
            offsets_of(self._source, is_stable=True), 7, offset_codes, self._group_coordinator
        )
        return max(0, int(answer.topics[0].partitions[0].committed_offset))

    async def _send_offset(self, offset: int) -> None:
        topic, index = self._source
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group_of(topic),
        )
        await self._retried(request, 3, one_code)
        one = txn_offset_commit.Partition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        commit = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_of(topic),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[txn_offset_commit.Topic(name=topic, partitions=[one])],
        )
        await self._retried(
            commit,
            3,
            lambda answer: [found.error_code for found in answer.topics[0].partitions],
            self._group_coordinator,
        )

    async def _group_coordinator(self) -> int | None:
        return await self._lookups.coordinator(group_of(self._source[0]), GROUP)


class Job:
    """A source partition, and who copies it at the moment."""

    def __init__(self, source: Partition) -> None:
        self.source = source
        self.live: Copier
        self.task: asyncio.Task[None]
        self.replaced = asyncio.Event()


class Copiers:
    """All jobs with all their instances."""

    def __init__(self, cluster: Cluster, tasks: asyncio.TaskGroup) -> None:
        self.jobs = {id_of(source): Job(source) for source in SOURCES}
        self._cluster = cluster
        self._tasks = tasks
        self._instances: list[Copier] = []
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Keep an instance of each running."""
        for job in self.jobs.values():
            self._running.append(self._tasks.create_task(self._supervise(job)))

    def stop(self) -> None:
        """End every instance here and now."""
        for task in self._running:
            task.cancel()

    @property
    def transactions(self) -> list[Transaction]:
        """Of all instances."""
        return [one for copier in self._instances for one in copier.transactions]

    def kill(self, transactional_id: str) -> None:
        """As ``kill -9`` does; the next instance follows."""
        self.jobs[transactional_id].task.cancel()

    def take_for_dead(self, transactional_id: str) -> Copier:
        """Have the next instance follow a live one, which is left as it is."""
        job = self.jobs[transactional_id]
        job.replaced.set()
        return job.live

    async def _supervise(self, job: Job) -> None:
        for instance in itertools.count(1):
            job.live = Copier(self._cluster, job.source, instance)
            job.replaced = asyncio.Event()
            job.task = self._tasks.create_task(job.live.run())
            self._instances.append(job.live)
            self._running.append(job.task)
            waiting = asyncio.create_task(job.replaced.wait())
            await asyncio.wait({job.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            await asyncio.sleep(self._cluster.loop.random.uniform(0, PAUSE_S))


class Onlooker:
    """Reads committed records and groups' offsets while others write them."""

    def __init__(self, cluster: Cluster) -> None:
        self.readings: list[Reading] = []
        self.offset_readings: list[OffsetReading] = []
        self._cluster = cluster
        self._lookups = Lookups(cluster, FRESH_S)
        self._positions = dict.fromkeys(TARGETS, 0)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for partition in TARGETS:
                await self.read(partition)
            await self._look_at_offsets()
            await asyncio.sleep(self._cluster.loop.random.uniform(0.05, REST_S))

    async def read(self, partition: Partition) -> int | None:
        """One fetch: where the next one begins; None when it was refused."""
        node = await self._lookups.leader(partition)
        start = self._positions[partition]
        answer = None
        if node is not None:
            answer = await self._cluster.ask(node, fetch_of(partition, start), 11)
        if answer is None or read_of(answer).error_code:
            return None
        found = read_of(answer)
        rows, end = shown(found, start)
        self._positions[partition] = end
        self.readings.append(
            Reading(
                reader="onlooker",
                partition=partition,
                start=start,
                end=end,
                rows=rows,
                last_stable=found.last_stable_offset,
                high_watermark=found.high_watermark,
            )
        )
        return end

    async def stable_offset(self, source: Partition) -> int | None:
        """The offset that the group has committed; None when nobody said so."""
        answer = await self._asked(source, is_stable=True)
        if answer is None or any(offset_codes(answer)):
            return None
        return max(0, int(answer.topics[0].partitions[0].committed_offset))

    async def _look_at_offsets(self) -> None:
        """As consoles do: without asking for stable ones."""
        for source in SOURCES:
            answer = await self._asked(source, is_stable=False)
            if answer is None or set(offset_codes(answer)) != {ErrorCode.NONE}:
                continue
            offset = int(answer.topics[0].partitions[0].committed_offset)
            if offset >= 0:
                told = OffsetReading(reader="onlooker", partition=source, offset=offset)
                self.offset_readings.append(told)

    async def _asked(self, source: Partition, *, is_stable: bool) -> Any:
        node = await self._lookups.coordinator(group_of(source[0]), GROUP)
        if node is None:
            return None
        return await self._cluster.ask(node, offsets_of(source, is_stable=is_stable), 7)
