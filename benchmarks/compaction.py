"""Compaction beside plain reading and writing, and what commits notice of it.

    python -m benchmarks.compaction [--megabytes 100] [--record-bytes 1000 ...] [--json FILE]

A node compacts a topic whose keys all come twice while a client commits offsets at a steady rate.
The same bytes are then read and written plainly in the same directory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.client.connection.connection import Connection
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics, find_coordinator, offset_commit, produce
from barnabas.protocol.records.batch import build_batch
from benchmarks.barnabas_node import barnabas_node
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess

COMMITS_PER_SECOND = 200
QUIET_S = 5.0
BATCH_BYTES = 100_000
DONE = re.compile(
    r"compacted log=Log\((?P<topic>[\w-]+)-0,.* bytes_read=(?P<read>\d+) "
    r"bytes_written=(?P<written>\d+) .*ms=(?P<ms>\d+)"
)
SETTINGS = {"log.cleaner.backoff.ms": "100", "offsets.topic.num.partitions": "1"}


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    """One pass."""

    record_bytes: int
    bytes_read: int
    """Both passes."""
    bytes_written: int
    seconds: float
    plain_seconds: float
    p99_ms_without: float
    p99_ms_while: float
    commits_while: int

    @property
    def rate(self) -> float:
        """Megabytes a second, read and written."""
        return (self.bytes_read + self.bytes_written) / self.seconds / 1e6

    def __str__(self) -> str:
        moved = (self.bytes_read + self.bytes_written) / 1e6
        return (
            f"records of {self.record_bytes} B: {moved:.0f} MB at {self.rate:.0f} MB/s, "
            f"{self.plain_seconds / self.seconds:.3f} of plain read() and write()\n"
            f"  commits: p99 {self.p99_ms_while:.2f} ms while compacting "
            f"({self.commits_while} of them), {self.p99_ms_without:.2f} ms without, "
            f"ratio {self.p99_ms_while / self.p99_ms_without:.2f}"
        )


class PacedCommitter:
    """Commits at a steady rate; each latency counts from when the commit was due."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.latencies: list[float] = []

    async def run(self) -> None:
        """Until cancelled."""
        due, offset = time.perf_counter(), 0
        while True:
            due += 1 / COMMITS_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            offset += 1
            await commit(self._connection, offset)
            self.latencies.append(time.perf_counter() - due)

    def taken(self) -> list[float]:
        """Those since the last time."""
        taken, self.latencies = self.latencies, []
        return taken


async def commit(connection: Connection, offset: int) -> int:
    """One offset; the error code."""
    partition = offset_commit.Partition(partition_index=0, committed_offset=offset)
    topics = [offset_commit.Topic(name="load", partitions=[partition])]
    request = offset_commit.OffsetCommitRequest(group_id="g", topics=topics)
    answer = await connection.request(request, 7)
    return int(answer.topics[0].partitions[0].error_code)


async def create(connection: Connection, topic: str) -> None:
    """A topic that is compacted as soon as its only segment is closed."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(2**31 - 1),
        "segment.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    made = create_topics.Topic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        configs=[create_topics.Config(name=name, value=item) for name, item in configs.items()],
    )
    request = create_topics.CreateTopicsRequest(topics=[made], timeout_ms=5000)
    answer = await connection.request(request, 5)
    assert answer.topics[0].error_code == 0, answer


Pairs = list[tuple[bytes, bytes]]


async def send(connection: Connection, topic: str, pairs: Pairs, at: int) -> None:
    """One batch."""
    batch = bytes(build_batch(pairs, timestamp_ms=at))
    data = produce.Partition(index=0, records=batch)
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[produce.Topic(name=topic, partition_data=[data])]
    )
    answer = await connection.request(request, 7)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


async def fill(connection: Connection, topic: str, megabytes: int, record_bytes: int) -> int:
    """Every key twice; returns the time of the records."""
    now_ms = int(time.time() * 1000)
    count = megabytes * 1_000_000 // record_bytes
    keys = [b"%012d" % (number * 7919 % (count // 2)) for number in range(count)]
    a_batch = max(1, BATCH_BYTES // record_bytes)
    value = os.urandom(max(1, record_bytes - 30))
    for first in range(0, count, a_batch):
        pairs = [(key, value) for key in keys[first : first + a_batch]]
        await send(connection, topic, pairs, now_ms)
    return now_ms


async def measure(
    server: ServerProcess, log: Path, megabytes: int, record_bytes: int, directory: Path
) -> CompactionOutcome:
    """Fill a topic, look at commits without and with its compaction."""
    topic = f"load-{record_bytes}"
    connection = await Connection.open("127.0.0.1", server.port)
    committing = await Connection.open("127.0.0.1", server.port)
    await create(connection, topic)
    now_ms = await fill(connection, topic, megabytes, record_bytes)
    committer = PacedCommitter(committing)
    task = asyncio.create_task(committer.run())
    try:
        await asyncio.sleep(1.0)
        committer.taken()
        await asyncio.sleep(QUIET_S)
        without = committer.taken()
        ending = asyncio.create_task(finished(log, topic))
        await send(connection, topic, [(b"last", b"")], now_ms + 7_200_000)
        read, written, seconds = await ending
        compacting = committer.taken()
    finally:
        task.cancel()
        await asyncio.wait([task])
        await connection.close()
        await committing.close()
    plain = await asyncio.to_thread(plainly, directory, read, written)
    return CompactionOutcome(
        record_bytes,
        read,
        written,
        seconds,
        plain,
        p99(without) * 1000,
        p99(compacting) * 1000,
        len(compacting),
    )


async def finished(log: Path, topic: str) -> tuple[int, int, float]:
    """Bytes read and written, and seconds, as the node says when it has compacted the topic.

    Looks at new lines only: the rest of this process measures latencies meanwhile.
    """
    with log.open() as lines:
        lines.seek(0, os.SEEK_END)
        while True:
            for line in lines:
                if (match := DONE.search(line)) and match["topic"] == topic:
                    return int(match["read"]), int(match["written"]), int(match["ms"]) / 1000
            await asyncio.sleep(0.05)


def p99(latencies: list[float]) -> float:
    """The latency that one in a hundred exceeds."""
    return sorted(latencies)[int(len(latencies) * 0.99)]


def plainly(directory: Path, read: int, written: int) -> float:
    """Seconds to read() and write() so many bytes, the latter with one fsync."""
    path, piece = directory / "plain", os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(read // 2 // len(piece) + 1):
            file.write(piece)
    began = time.perf_counter()
    for _ in range(2):
        with path.open("rb", buffering=0) as file:
            while file.read(len(piece)):
                pass
    with (directory / "copy").open("wb", buffering=0) as file:
        for _ in range(written // len(piece) + 1):
            file.write(piece)
        os.fsync(file.fileno())
    return time.perf_counter() - began


async def ready(server: ServerProcess) -> None:
    """Wait until the node coordinates groups."""
    connection = await Connection.open("127.0.0.1", server.port)
    request = find_coordinator.FindCoordinatorRequest(key="g")
    is_known = False
    while True:
        found = await connection.request(request, 2)
        code = found.error_code or await commit(connection, 0)
        if not code:
            break
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_known:
            await create(connection, "load")
            is_known = True
        await asyncio.sleep(0.1)
    await connection.close()


async def run(
    server: ServerProcess, log: Path, options: argparse.Namespace
) -> list[CompactionOutcome]:
    """One topic after the other."""
    await ready(server)
    found = []
    for record_bytes in options.record_bytes:
        found.append(await measure(server, log, options.megabytes, record_bytes, options.directory))
        print(found[-1])
    return found


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--record-bytes", type=int, nargs="+", default=[1000, 100])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="barnabas-compaction-") as name:
        options.directory = directory = Path(name)
        with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
            node = barnabas_node(directory / "node", zookeeper.hosts, settings=SETTINGS)
            with node as server:
                log = directory / "node" / "node.log"
                found = asyncio.run(run(server, log, options))
    if options.json:
        figures = [asdict(outcome) for outcome in found]
        options.json.write_text(json.dumps({"machine": machine(), "passes": figures}, indent=1))


if __name__ == "__main__":
    main()
