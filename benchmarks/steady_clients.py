"""Clients that go on without rest and note what came of every single request.

They try nothing again by themselves that hides an answer: each code is kept with its time. Offsets
are committed and fetched, records are produced with acks=all and fetched. Source: Kafka 3.9's
schemas of the versions named; both servers speak them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.messages import (
    fetch,
    find_coordinator,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from barnabas.protocol.records import batch

Address = tuple[str, int]

PACE_S: Final = 0.02
"""Between two rounds of one client."""
ANSWER_MS: Final = 60_000
"""Longer than any stall: an answer that comes late is a gap, not a failure."""
NO_ERROR: Final = 0
NO_ANSWER: Final = -2
"""In the place of a code: the connection ended, or none came about."""
NOT_KNOWN: Final = -3
"""In the place of a code: the node knows no leader."""
UNCOMMITTED: Final = -1
LOOK_UPS: Final = ("FindCoordinator", "Metadata")
"""What these answer is a step on the way: only its failure counts."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request; times are monotonic, in seconds."""

    sent: float
    at: float
    api: str
    code: int

    @property
    def is_success(self) -> bool:
        """Something was committed, produced or fetched."""
        return self.code == NO_ERROR and self.api not in LOOK_UPS


class SteadyClient:
    """One of them: repeats its round until it is cancelled."""

    kind = ""
    """What a table calls it."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.answers: list[Answer] = []
        self.wrong: list[str] = []
        """Whatever was answered with success and is not true."""
        self._addresses = list(addresses)
        self._turns = itertools.count()
        self._links: dict[Address, Connection] = {}

    async def run(self) -> None:
        """Go on for ever."""
        try:
            while True:
                await self.round()
                await asyncio.sleep(PACE_S)
        finally:
            for link in self._links.values():
                await link.close()

    async def round(self) -> None:
        """One or more requests, each after the answer to the one before."""
        raise NotImplementedError

    def next_node(self) -> Address:
        """Each in turn, so that every node is asked."""
        return self._addresses[next(self._turns) % len(self._addresses)]

    async def ask(self, address: Address, message: Any, version: int) -> tuple[Any, float]:
        """The answer and when its request was sent; None where none came, which is noted."""
        sent = time.monotonic()
        try:
            link = self._links.get(address)
            if link is None or link.is_closed:
                link = await Connection.open(*address, timeout_ms=ANSWER_MS)
                self._links[address] = link
            return await link.request(message, version), sent
        except KafkaError:
            self.note(message, sent, NO_ANSWER)
            return None, sent

    def note(self, message: Any, sent: float, code: int) -> bool:
        """Keep what came of a request; True when it was success."""
        api = type(message).__name__.removesuffix("Request")
        self.answers.append(Answer(sent, time.monotonic(), api, code))
        return code == NO_ERROR


class SteadyCommitter(SteadyClient):
    """Finds the coordinator of its group, commits the next offset there and fetches it."""

    kind = "offsets"

    def __init__(self, addresses: Sequence[Address], group: str, topic: str) -> None:
        super().__init__(addresses)
        self.acknowledged = self.sent = UNCOMMITTED
        self._group = group
        self._topic = topic

    async def round(self) -> None:
        """FindCoordinator 2, OffsetCommit 6, OffsetFetch 5."""
        looked_for = find_coordinator.FindCoordinatorRequest(key=self._group)
        found, sent = await self.ask(self.next_node(), looked_for, 2)
        if found is None or not self.note(looked_for, sent, found.error_code):
            return
        address = (found.host, found.port)
        await self._commit(address)
        await self._fetch(address)

    async def _commit(self, address: Address) -> None:
        self.sent += 1
        partition = offset_commit.Partition(
            partition_index=0, committed_offset=self.sent, committed_metadata=""
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=self._group,
            topics=[offset_commit.Topic(name=self._topic, partitions=[partition])],
        )
        number = self.sent
        answer, sent = await self.ask(address, request, 6)
        if answer is None:
            return
        if self.note(request, sent, answer.topics[0].partitions[0].error_code):
            self.acknowledged = number

    async def _fetch(self, address: Address) -> None:
        request = offset_fetch.OffsetFetchRequest(
            group_id=self._group,
            topics=[offset_fetch.Topic(name=self._topic, partition_indexes=[0])],
        )
        known = self.acknowledged
        answer, sent = await self.ask(address, request, 5)
        if answer is None or not self.note(request, sent, answer.error_code):
            return
        offset = answer.topics[0].partitions[0].committed_offset
        if not known <= offset <= self.sent:
            self.wrong.append(f"{self._group}: {offset} after {known} was acknowledged")


class RecordClient(SteadyClient):
    """One that asks the leader of a partition, found anew after every failure."""

    def __init__(self, addresses: Sequence[Address], topic: str, partition: int) -> None:
        super().__init__(addresses)
        self._topic = topic
        self._partition = partition
        self._leader: Address | None = None

    async def leader(self) -> Address | None:
        """Where the partition is led; None where the node that was asked does not know."""
        if self._leader is None:
            request = metadata.MetadataRequest(topics=[metadata.Topic(name=self._topic)])
            answer, sent = await self.ask(self.next_node(), request, 5)
            if answer is not None:
                self._leader = self._read_leader(answer)
                self.note(request, sent, NO_ERROR if self._leader else NOT_KNOWN)
        return self._leader

    def forget_leader(self) -> None:
        """It is to be looked for again."""
        self._leader = None

    def _read_leader(self, answer: metadata.MetadataResponse) -> Address | None:
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for one in answer.topics[0].partitions:
            if one.partition_index == self._partition:
                return brokers.get(one.leader_id)
        return None


class SteadyProducer(RecordClient):
    """One record after the other, acks=all; the value is its number."""

    kind = "records"

    def __init__(self, addresses: Sequence[Address], topic: str, partition: int) -> None:
        super().__init__(addresses, topic, partition)
        self.acknowledged: dict[int, int] = {}
        """The number of the record at each offset."""
        self._numbers = itertools.count()

    async def round(self) -> None:
        """Produce 7."""
        address = await self.leader()
        if address is None:
            return
        number = next(self._numbers)
        records = bytes(batch.build_single(b"", b"%d" % number, int(time.time() * 1000)))
        data = [produce.Partition(index=self._partition, records=records)]
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=ANSWER_MS,
            topic_data=[produce.Topic(name=self._topic, partition_data=data)],
        )
        answer, sent = await self.ask(address, request, 7)
        result = None if answer is None else answer.responses[0].partition_responses[0]
        if result is not None and self.note(request, sent, result.error_code):
            self.acknowledged[result.base_offset] = number
        else:
            self.forget_leader()


class SteadyReader(RecordClient):
    """Reads a partition from its beginning, and then whatever comes."""

    kind = "records"

    def __init__(self, addresses: Sequence[Address], topic: str, partition: int) -> None:
        super().__init__(addresses, topic, partition)
        self.read: dict[int, int] = {}
        """The number of the record at each offset."""
        self.position = 0

    async def round(self) -> None:
        """Fetch 11."""
        address = await self.leader()
        if address is None:
            return
        asked = fetch.Partition(
            partition=self._partition, fetch_offset=self.position, partition_max_bytes=1 << 20
        )
        request = fetch.FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[fetch.Topic(topic=self._topic, partitions=[asked])],
        )
        answer, sent = await self.ask(address, request, 11)
        result = None if answer is None else answer.responses[0].partitions[0]
        if result is None or not self.note(request, sent, answer.error_code or result.error_code):
            self.forget_leader()
            return
        for start, _end in batch.iterate(result.records or b""):
            for record in batch.records(result.records or b"", start):
                if record.offset >= self.position:
                    self.read[record.offset] = int(record.value or b"-1")
                    self.position = record.offset + 1


class SteadyClients:
    """All of them on an event loop in a thread of its own, while the ``with`` lasts."""

    def __init__(
        self, addresses: Sequence[Address], topic: str, groups: Sequence[str], partitions: int
    ) -> None:
        self.committers = [SteadyCommitter(addresses, group, topic) for group in groups]
        self.producers = [SteadyProducer(addresses, topic, index) for index in range(partitions)]
        self.readers = [SteadyReader(addresses, topic, index) for index in range(partitions)]
        self.all: Sequence[SteadyClient] = [*self.committers, *self.producers, *self.readers]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: list[concurrent.futures.Future[None]] = []

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        self._begin(self.all)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End all at once."""
        self._end(self._tasks)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def check(self) -> None:
        """Raise what ended one of them before its time."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def marks(self) -> list[int]:
        """How many answers each has, to be compared with :meth:`all_went_on`."""
        self.check()
        return [len(client.answers) for client in self.all]

    def all_went_on(self, marks: Sequence[int], count: int = 1) -> bool:
        """Each has had ``count`` successes more since then."""
        self.check()
        return all(
            sum(answer.is_success for answer in client.answers[mark:]) >= count
            for client, mark in zip(self.all, marks, strict=True)
        )

    def others(self, since: float = 0.0, until: float = float("inf")) -> Counter[tuple[str, int]]:
        """How often what was answered but success, to requests sent in that time."""
        return Counter(
            (answer.api, answer.code)
            for client in self.all
            for answer in list(client.answers)
            if answer.code != NO_ERROR and since <= answer.sent < until
        )

    def stop_writing(self) -> None:
        """No record and no commit from now on; reading goes on."""
        count = len(self.committers) + len(self.producers)
        self._end(self._tasks[:count])

    def has_read_all(self) -> bool:
        """Everything that was acknowledged could have been read by now."""
        self.check()
        return all(
            reader.position > max(producer.acknowledged, default=-1)
            for producer, reader in zip(self.producers, self.readers, strict=True)
        )

    def violations(self) -> list[str]:
        """What was acknowledged and is not there, or not where it was said to be."""
        found = [wrong for client in self.all for wrong in client.wrong]
        for producer, reader in zip(self.producers, self.readers, strict=True):
            found += [
                f"record {number} is not at offset {offset}: {reader.read.get(offset)}"
                for offset, number in producer.acknowledged.items()
                if reader.read.get(offset) != number
            ]
        return found

    def longest_gap(self, kind: str, since: float, until: float) -> float:
        """The longest in seconds that one client of this kind was without a success."""
        return max(
            longest_gap(client.answers, since, until) for client in self.all if client.kind == kind
        )

    def resumption(self, kind: str, since: float) -> float:
        """From ``since`` until every client of a kind succeeds, and goes on to; in seconds."""
        return max(
            resumed_at(client.answers, since) - since for client in self.all if client.kind == kind
        )

    def _begin(self, clients: Iterable[SteadyClient]) -> None:
        self._tasks = [
            asyncio.run_coroutine_threadsafe(client.run(), self._loop) for client in clients
        ]

    def _end(self, tasks: Iterable[concurrent.futures.Future[None]]) -> None:
        ended = list(tasks)
        for task in ended:
            task.cancel()
        asyncio.run_coroutine_threadsafe(_turn(), self._loop).result()


async def _turn() -> None:
    """Let what was cancelled end: it closes its connections."""
    ending = [task for task in asyncio.all_tasks() if task.cancelling()]
    await asyncio.gather(*ending, return_exceptions=True)


def longest_gap(answers: Sequence[Answer], since: float, until: float) -> float:
    """The longest time between two successes that touches the span, the span's ends included."""
    times = [
        since,
        *(answer.at for answer in answers if answer.is_success and since < answer.at < until),
        until,
    ]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def resumed_at(answers: Sequence[Answer], since: float) -> float:
    """The first success after ``since`` that no refusal follows; infinite if there is none."""
    resumed = float("inf")
    for answer in reversed(answers):
        if answer.at < since or answer.code != NO_ERROR:
            break
        if answer.is_success:
            resumed = answer.at
    return resumed
