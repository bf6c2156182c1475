"""The generator of transactions: one job a line on standard input, one result a line back.

Each producer is one connection and one transactional id, and does what a client has to do one after
the other: AddPartitionsToTxn, Produce, EndTxn. Answers are looked at, every one; and what readers
of committed records find when a window is over must be every committed transaction, once.
"""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, cast

import uvloop

from barnabas.console.development.ports import LOOPBACK
from benchmarks import frames, transaction_frames
from benchmarks.generator import CREATED
from benchmarks.server_process import cpu_seconds
from benchmarks.transaction_copy import GROUP, CopyJob, measure_copy
from benchmarks.transaction_frames import CONCURRENT_TRANSACTIONS, NONE, Producer
from benchmarks.transaction_link import Link, WrongAnswer, until

TOPIC: Final = "transactions"
PARTITIONS: Final = 100
VALUE: Final = b"v" * 100
RETRY_S: Final = 0.002
"""After 51: the markers of the last transaction are on their way. Twice as long each time."""
RETRY_MAX_S: Final = 0.02
"""As long as the Java client waits each time."""
LIMIT_S: Final = 60.0
_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class TransactionWindow:
    """One window: so many producers, each with so many partitions a transaction."""

    port: int
    pids: Sequence[int]
    producers: int
    partitions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What one window saw; ``wrong`` is the first answer that was not the expected one."""

    committed: int = 0
    refused: int = 0
    """How often a producer was told that its last transaction is not over (51)."""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    generator_seconds: float = 0.0
    wrong: str = ""


class ProducerConnection(asyncio.Protocol):
    """Transactions one after the other; each has one record in each of its partitions."""

    def __init__(self, transactional_id: str, partitions: Sequence[int]) -> None:
        self.committed = self.refused = 0
        self.wrong = ""
        self.is_open = True
        self.closed = asyncio.get_running_loop().create_future()
        self._id = transactional_id
        self._partitions = partitions
        self._records = transaction_frames.records_of([VALUE])
        self._sequence = 0
        self._correlation = 0
        self._pause_s = RETRY_S
        self._rest = b""
        self._answered: Callable[[bytes], None] = self._initialised

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Become the only producer of the id."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        self._initialise()

    def data_received(self, data: bytes) -> None:
        """One request is on its way, so there is one answer."""
        received = self._rest + data if self._rest else data
        if len(received) < 4 or len(received) < 4 + _SIZE.unpack_from(received)[0]:
            self._rest = received
            return
        self._rest = b""
        answer = received[4:]
        if _CORRELATION.unpack_from(answer)[0] != self._correlation:
            self._fail("correlation", answer)
            return
        self._answered(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember when it is the server who closed."""
        if self.is_open and not self.wrong:
            self.wrong = f"connection lost: {exc}"
        if not self.closed.done():
            self.closed.set_result(None)

    def _initialise(self) -> None:
        self._send(transaction_frames.init_producer_id(self._id), self._initialised)

    def _initialised(self, answer: bytes) -> None:
        code, producer_id, epoch = transaction_frames.initialised(answer)
        if code == CONCURRENT_TRANSACTIONS:
            self._again(self._initialise)
        elif code != NONE:
            self._fail("InitProducerId", answer)
        else:
            self._producer = Producer(self._id, producer_id, epoch)
            self._add_frame = self._producer.add_partitions(TOPIC, self._partitions)
            self._end_frame = self._producer.end()
            self._add()

    def _add(self) -> None:
        self._send(self._add_frame, self._added)

    def _added(self, answer: bytes) -> None:
        code = transaction_frames.added_code(answer, TOPIC, len(self._partitions))
        if code == CONCURRENT_TRANSACTIONS:
            self.refused += 1
            self._again(self._add)
        elif code != NONE:
            self._fail("AddPartitionsToTxn", answer)
        else:
            self._pause_s = RETRY_S
            # Every partition is in every transaction, so all have the same sequence.
            batch = self._producer.batch(self._sequence, self._records, 1)
            self._sequence += 1
            request = self._producer.produce(TOPIC, self._partitions, batch)
            self._send(request, self._produced)

    def _produced(self, answer: bytes) -> None:
        if transaction_frames.produced_code(answer, TOPIC, len(self._partitions)) != NONE:
            self._fail("Produce", answer)
        else:
            self._send(self._end_frame, self._ended)

    def _ended(self, answer: bytes) -> None:
        if transaction_frames.single_code(answer) != NONE:
            self._fail("EndTxn", answer)
            return
        self.committed += 1
        if self.is_open:
            self._add()
        else:
            self._transport.close()

    def _again(self, what: Callable[[], None]) -> None:
        """Later; a producer that is to stop has nothing open then."""
        if self.is_open:
            asyncio.get_running_loop().call_later(self._pause_s, self._go_on, what)
            self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)
        else:
            self._transport.close()

    def _go_on(self, what: Callable[[], None]) -> None:
        if self.is_open:
            what()
        else:
            self._transport.close()

    def _send(self, frame: bytes, answered: Callable[[bytes], None]) -> None:
        self._answered = answered
        self._correlation += 1
        request = bytearray(frame)
        _CORRELATION.pack_into(request, frames.CORRELATION_AT, self._correlation)
        self._transport.write(request)

    def _fail(self, what: str, answer: bytes) -> None:
        self.wrong = self.wrong or f"{self._id}: {what}: {answer[:80].hex()}"
        self._transport.abort()


def partitions_of(number: int, count: int) -> list[int]:
    """What producer ``number`` writes to: neighbours have others, as far as there are enough."""
    return sorted((number * count + place) % PARTITIONS for place in range(count))


async def run(job: TransactionWindow) -> TransactionResult:
    """Drive one system for a window; what counts was answered inside it."""
    async with Link(job.port) as link:
        before = await committed_ends(link)
        lanes = [
            ProducerConnection(f"load-{number:02}", partitions_of(number, job.partitions))
            for number in range(job.producers)
        ]
        loop = asyncio.get_running_loop()
        for lane in lanes:
            await loop.create_connection(lambda lane=lane: lane, LOOPBACK, job.port)  # type: ignore[misc]
        await until(lambda: all(lane.committed or lane.wrong for lane in lanes), LIMIT_S)
        result = await _counted(job, lanes)
        for lane in lanes:
            lane.is_open = False
        await asyncio.wait([lane.closed for lane in lanes], timeout=LIMIT_S)
        wrong = next((lane.wrong for lane in lanes if lane.wrong), "")
        expected = before + 2 * job.partitions * sum(lane.committed for lane in lanes)
        if not wrong:
            wrong = await difference(link, expected)
        return replace(result, wrong=wrong)


async def _counted(
    job: TransactionWindow, lanes: Sequence[ProducerConnection]
) -> TransactionResult:
    def seen() -> tuple[int, int, float, float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return (
            sum(lane.committed for lane in lanes),
            sum(lane.refused for lane in lanes),
            time.monotonic(),
            sum(map(cpu_seconds, job.pids)),
            usage.ru_utime + usage.ru_stime,
        )

    before = seen()
    await asyncio.sleep(job.seconds)
    after = seen()
    committed, refused = after[0] - before[0], after[1] - before[1]
    wall, cpu, generator = (after[place] - before[place] for place in (2, 3, 4))
    return TransactionResult(committed, refused, wall, cpu, generator)


async def committed_ends(link: Link) -> int:
    """The sum of the last stable offsets of all partitions."""
    answer = await link.call(transaction_frames.list_ends(TOPIC, PARTITIONS))
    found = transaction_frames.listed_ends(answer, PARTITIONS)
    if found is None:
        raise WrongAnswer(f"ListOffsets: {answer[-22:].hex()}")
    return found


async def difference(link: Link, expected: int) -> str:
    """Wait until all is readable that was committed; what is wrong if that does not come."""
    deadline, found = time.monotonic() + LIMIT_S, -1
    while found < expected and time.monotonic() < deadline:
        found = await committed_ends(link)
        await asyncio.sleep(RETRY_S)
    return "" if found == expected else f"{found} records and markers instead of {expected}"


async def prepare(port: int) -> None:
    """Create the topics; return when a transaction with all partitions went through."""
    create = [frames.create_topic(name, count) for name, count in topics()]
    found = transaction_frames.find_transaction_coordinator("load-00")
    group = frames.find_coordinator(GROUP)  # which has Kafka create the topic of offsets

    async def is_ready() -> bool:
        async with Link(port) as link:
            for request in create:
                if frames.create_topic_error(await link.call(request)) not in CREATED:
                    return False
            if transaction_frames.found_code(await link.call(found)):
                return False
            if frames.find_coordinator_error(await link.call(group)):
                return False
            answer = await link.call(transaction_frames.list_ends(TOPIC, PARTITIONS))
            if transaction_frames.listed_ends(answer, PARTITIONS) is None:
                return False
        return not (await run(TransactionWindow(port, (), 1, PARTITIONS, 0.0))).wrong

    deadline = time.monotonic() + LIMIT_S
    while not await is_ready():
        if time.monotonic() > deadline:
            raise TimeoutError("the system does not come to answer as it must")
        await asyncio.sleep(0.05)


def topics() -> list[tuple[str, int]]:
    """What is created: names and partitions."""
    return [(TOPIC, PARTITIONS), *((name, 1) for name in CopyJob.TOPICS)]


def main() -> None:
    """Serve jobs until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, object] = {}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if order["do"] == "prepare":
                runner.run(prepare(order["port"]))
            elif order["do"] == "copy":
                answer = asdict(runner.run(measure_copy(CopyJob(**order["job"]))))
            else:
                answer = asdict(runner.run(run(TransactionWindow(**order["job"]))))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
