"""How long a record takes through an exactly-once copy, from produce to a committed reader.

A source writes records at a fixed rate, whatever the others do. A copier reads what is new, writes
it to the target and stores its offset, all in one transaction. A reader of committed records waits
at the target. Each is one connection; a record's value is the time at which it was sent.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from benchmarks import transaction_frames
from benchmarks.transaction_frames import CONCURRENT_TRANSACTIONS, NONE, Producer
from benchmarks.transaction_link import Link, WrongAnswer

GROUP: Final = "copiers"
FETCH_WAIT_MS: Final = 500
RETRY_S: Final = 0.002
LIMIT_S: Final = 60.0
RECORDS_MAX: Final = 60
"""In one transaction: offsets within a batch then have one byte, and all records one size."""
RECORD_BYTES: Final = 15
"""A byte each for length, attributes, time, offset, key, value and headers, and the value."""
VALUE_AT: Final = 6
RETRIABLE: Final = (14, 15, 16, CONCURRENT_TRANSACTIONS)


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One measurement: ``rate`` records a second for ``seconds``."""

    TOPICS: ClassVar = ("copy-source", "copy-target")

    port: int
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Milliseconds of every record, in order, and how many transactions brought them."""

    latencies_ms: list[float]
    transactions: int
    refused: int


class Copy:
    """The three of them."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._source, self._target = job.TOPICS
        self._count = round(job.rate * job.seconds)
        self._transactions = self._refused = 0

    async def run(self) -> CopyResult:
        """Copy as many records as the job has, from the present ends of both topics."""
        async with (
            Link(self._job.port) as source,
            Link(self._job.port) as answers,
            Link(self._job.port) as copier,
            Link(self._job.port) as target,
        ):
            begin = await _end(answers, self._source)
            end = await _end(answers, self._target)
            async with asyncio.timeout(self._job.seconds + LIMIT_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(source, copier, begin))
                reading = tasks.create_task(self._read(target, end))
                tasks.create_task(self._write(answers))
        return CopyResult(reading.result(), self._transactions, self._refused)

    async def _write(self, link: Link) -> None:
        """Send at the rate, and look at the answers meanwhile."""
        acknowledging = asyncio.ensure_future(self._acknowledge(link))
        begin = time.monotonic()
        for number in range(self._count):
            await asyncio.sleep(begin + number / self._job.rate - time.monotonic())
            record = transaction_frames.records_of([struct.pack(">q", time.monotonic_ns())])
            link.send(transaction_frames.plain_produce(self._source, 0, record, 1))
        await acknowledging

    async def _acknowledge(self, link: Link) -> None:
        for _ in range(self._count):
            answer = await link.receive()
            _expect(transaction_frames.produced_code(answer, self._source, 1), "Produce")

    async def _copy(self, source: Link, link: Link, position: int) -> None:
        """Consume, and produce in transactions."""
        name = "copier"
        code, producer_id, epoch = CONCURRENT_TRANSACTIONS, -1, -1
        while code in RETRIABLE:
            answer = await link.call(transaction_frames.init_producer_id(name))
            code, producer_id, epoch = transaction_frames.initialised(answer)
            await asyncio.sleep(RETRY_S)
        _expect(code, "InitProducerId")
        producer = Producer(name, producer_id, epoch)
        copied = 0
        while copied < self._count:
            values, position = await _values(source, self._source, position)
            for first in range(0, len(values), RECORDS_MAX):
                part = values[first : first + RECORDS_MAX]
                behind = position - len(values) + first + len(part)
                await self._transact(link, producer, part, copied, behind)
                copied += len(part)

    async def _transact(
        self, link: Link, producer: Producer, values: list[bytes], sequence: int, position: int
    ) -> None:
        """One transaction: the records, and how far the source was read."""
        await self._ask(
            link,
            producer.add_partitions(self._target, [0]),
            lambda answer: transaction_frames.added_code(answer, self._target, 1),
            "AddPartitionsToTxn",
        )
        batch = producer.batch(sequence, transaction_frames.records_of(values), len(values))
        answer = await link.call(producer.produce(self._target, [0], batch))
        _expect(transaction_frames.produced_code(answer, self._target, 1), "Produce")
        await self._ask(
            link,
            producer.add_offsets(GROUP),
            transaction_frames.single_code,
            "AddOffsetsToTxn",
        )
        await self._ask(
            link,
            producer.commit_offset(GROUP, self._source, 0, position),
            lambda answer: transaction_frames.added_code(answer, self._source, 1),
            "TxnOffsetCommit",
        )
        await self._ask(link, producer.end(), transaction_frames.single_code, "EndTxn")
        self._transactions += 1

    async def _ask(
        self, link: Link, frame: bytes, code_of: Callable[[bytes], int], what: str
    ) -> None:
        """Have it done; what may pass is asked again."""
        while (code := code_of(await link.call(frame))) in RETRIABLE:
            self._refused += 1
            await asyncio.sleep(RETRY_S)
        _expect(code, what)

    async def _read(self, link: Link, position: int) -> list[float]:
        """The latency of every record, as a reader of committed records sees it."""
        found: list[float] = []
        while len(found) < self._count:
            values, position = await _values(link, self._target, position)
            now = time.monotonic_ns()
            found += [(now - struct.unpack(">q", value)[0]) / 1e6 for value in values]
        return found


async def measure_copy(job: CopyJob) -> CopyResult:
    """Run one job."""
    return await Copy(job).run()


async def _values(link: Link, topic: str, position: int) -> tuple[list[bytes], int]:
    """What is new, and where to go on; control records are passed over."""
    answer = await link.call(transaction_frames.fetch(topic, 0, position, FETCH_WAIT_MS))
    code, batches = transaction_frames.fetched(answer)
    _expect(code, "Fetch")
    values: list[bytes] = []
    for following, attributes, records in batches:
        position = following
        if attributes & 0x20:
            continue
        assert len(records) % RECORD_BYTES == 0, "all records have one size"
        starts = range(VALUE_AT, len(records), RECORD_BYTES)
        values += [records[at : at + 8] for at in starts]
    return values, position


async def _end(link: Link, topic: str) -> int:
    answer = await link.call(transaction_frames.list_ends(topic, 1))
    found = transaction_frames.listed_ends(answer, 1)
    if found is None:
        raise WrongAnswer(f"ListOffsets: {answer.hex()}")
    return found


def _expect(code: int, what: str) -> None:
    if code != NONE:
        raise WrongAnswer(f"{what} was answered {code}")
