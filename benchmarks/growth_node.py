"""One real node with more and more partitions: start, memory, metadata, the controller's takeover.

Topics are added until there are as many partitions as a size says; ZooKeeper stands beside it. A
takeover is caused by taking the controller's znode away, and over when a topic can be made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from barnabas.protocol.codec.compiler import decode
from barnabas.protocol.messages import create_topics, list_offsets, metadata
from benchmarks.barnabas_node import barnabas_node
from benchmarks.bulk_answers import frame
from benchmarks.restart import FrameConnection
from benchmarks.server_process import (
    ServerFailed,
    ServerProcess,
    cpu_seconds,
    resident_bytes,
)

COLUMNS = (
    "create them, ms each",
    "memory, MiB",
    "Metadata of all, ms",
    "controller's takeover, s of CPU",
    "start until all are led, s of CPU",
    "by the clock, s",
)
PATIENCE_S = 600.0
TOPICS_A_REQUEST = 50
CREATE_VERSION, METADATA_VERSION, OFFSETS_VERSION = 5, 9, 7
LATEST = -1
TOPIC_EXISTS, NOT_CONTROLLER = 36, 41
MEMORY_UNIT = 1 << 20


class GrowingNode:
    """A node that is asked for topics, for what there is, and to start again."""

    def __init__(self, directory: Path, zookeeper: str, partitions_a_topic: int) -> None:
        self._server: ServerProcess = barnabas_node(directory, zookeeper)
        self._zookeeper = KazooClient(zookeeper, timeout=30.0)
        self._partitions = partitions_a_topic
        self._topics = 0
        self._link: FrameConnection | None = None

    def grow(self, sizes: Sequence[int]) -> Iterator[tuple[int, Sequence[float]]]:
        """What each size costs, as in COLUMNS; sizes in partitions, in order."""
        with self._server:
            self._zookeeper.start(timeout=30)
            try:
                for size in sizes:
                    yield size, self._costs(size)
            finally:
                self._zookeeper.stop()
                self._zookeeper.close()

    def _costs(self, size: int) -> Sequence[float]:
        began, before = time.monotonic(), self._topics
        self._create(size // self._partitions)
        made = (self._topics - before) * self._partitions
        created = (time.monotonic() - began) * 1e3 / max(1, made)
        memory = resident_bytes(self._server.pid) / MEMORY_UNIT
        answered = self._answer_ms()
        taken_over = self._cpu_of(self._take_over)
        self._hang_up()
        self._server.stop(PATIENCE_S)  # killed, it would verify every log at the next start
        began = time.monotonic()
        self._server.launch()
        self._until(self._is_whole)
        started = time.monotonic() - began
        return (
            *(created, memory, answered, taken_over),
            *(cpu_seconds(self._server.pid), started),
        )

    def _create(self, topics: int) -> None:
        while self._topics < topics:
            wanted = min(TOPICS_A_REQUEST, topics - self._topics)
            names = [_topic(self._topics + number) for number in range(wanted)]
            self._until(lambda: self._make(names))  # noqa: B023 - called at once
            self._topics += wanted
        self._until(self._is_whole)

    def _make(self, names: Sequence[str]) -> bool:
        request = create_topics.CreateTopicsRequest(
            topics=[
                create_topics.Topic(
                    name=name, num_partitions=self._partitions, replication_factor=1
                )
                for name in names
            ],
            timeout_ms=60_000,
        )
        answer = decode(
            create_topics.CreateTopicsResponse,
            CREATE_VERSION,
            self._ask(19, CREATE_VERSION, request)[5:],
        )
        return all(topic.error_code in (0, TOPIC_EXISTS) for topic in answer.topics)

    def _is_whole(self) -> bool:
        """The node leads the first and the last partition of every topic.

        Asked of their leader, not of the Metadata, which tells of leaders before they know it.
        """
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.Topic(
                    name=name,
                    partitions=[
                        list_offsets.Partition(partition_index=index, timestamp=LATEST)
                        for index in sorted({0, self._partitions - 1})
                    ],
                )
                for name in map(_topic, range(self._topics))
            ],
        )
        answer = decode(
            list_offsets.ListOffsetsResponse,
            OFFSETS_VERSION,
            self._ask(2, OFFSETS_VERSION, request)[5:],
        )
        return not any(
            partition.error_code for topic in answer.topics for partition in topic.partitions
        )

    def _metadata(self) -> bytes:
        return self._ask(3, METADATA_VERSION, metadata.MetadataRequest(topics=None))

    def _answer_ms(self) -> float:
        """By the clock of this side, the least of some."""
        best = float("inf")
        for _ in range(5):
            began = time.monotonic()
            self._metadata()
            best = min(best, time.monotonic() - began)
        return best * 1e3

    def _take_over(self) -> None:
        """Elect the node anew; the next topic is made by the new term."""
        epoch = self._zookeeper.get("/controller_epoch")[0]
        self._zookeeper.delete("/controller")
        self._until(lambda: self._zookeeper.get("/controller_epoch")[0] != epoch)
        self._create(self._topics + 1)

    def _cpu_of(self, work: Callable[[], None]) -> float:
        before = cpu_seconds(self._server.pid)
        work()
        return cpu_seconds(self._server.pid) - before

    def _ask(self, key: int, version: int, request: object) -> bytes:
        if self._link is None:
            self._link = FrameConnection(self._server.port)
        return self._link.call(frame(key, version, request, is_flexible=True))

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _until(self, holds: Callable[[], bool]) -> None:
        """Asked seldom where it takes long, so that the asking is no part of what it takes."""
        began = time.monotonic()
        while True:
            try:
                if holds():
                    return
            except OSError:
                self._hang_up()
            if self._server.exit_code is not None or time.monotonic() > began + PATIENCE_S:
                raise ServerFailed(f"it does not serve\n{self._server.last_words()}")
            time.sleep(max(0.05, (time.monotonic() - began) / 20))


def _topic(number: int) -> str:
    return f"topic-{number:06}"
