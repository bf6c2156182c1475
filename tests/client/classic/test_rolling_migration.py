"""The rolling migration of the documents with consumers in processes, one of which is killed -9.

A member and a node are killed in each of the four steps, messages are written all the time. Every
message is processed, nobody starts before what was acknowledged in either store, and what comes
twice was uncommitted when its owner was killed or in hand when it let go.
Source: docs/spec/coordinator.md §6.8 and §6.12 check C6.6; tests/sim/test_migration.py has
accidents anywhere, by seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.producer.producer import Producer
from barnabas.client.topology import TopicPartition
from barnabas.console.development.cluster import Cluster

ROOT = Path(__file__).parents[3]
PARTITIONS = 4
COMMIT_MS = 200
SESSION_MS = 10_000
"""Of whoever is alive it must not end, however busy the machine is: the audit excuses the dead.
ZooKeeper grants no more."""

ZOOKEEPER: dict[str, Any] = {"offsets_storage": "zookeeper", "dual_commit_enabled": False}
THERE: Sequence[dict[str, Any]] = (
    {"offsets_storage": "kafka", "dual_commit_enabled": True},
    {"offsets_storage": "kafka", "dual_commit_enabled": False},
)
BACK: Sequence[dict[str, Any]] = (
    {"offsets_storage": "zookeeper", "dual_commit_enabled": True},
    ZOOKEEPER,
)


class Worker:
    """One consumer process; it is started again with whatever its settings are by then."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        group = self._group
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.client.classic.classic_worker",
            str(group.diary),
            group.topic,
            "1",
            json.dumps(group.settings),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(180):
            assert await self._process.stdout.readline() == b"joined\n"

    async def end(self, how: signal.Signals) -> None:
        if how is signal.SIGKILL:
            self._group.killed.add(self._process.pid)
        self._process.send_signal(how)
        async with asyncio.timeout(180):
            code = await self._process.wait()
        assert code == (0 if how is signal.SIGTERM else -how)

    def send(self, what: signal.Signals) -> None:
        self._process.send_signal(what)

    def abandon(self) -> None:
        with contextlib.suppress(ProcessLookupError, AttributeError):
            self._process.kill()


class Group:
    """Workers of one group, their settings of now, and the diary they share."""

    def __init__(self, cluster: Cluster, name: str, topic: str, diary: Path, count: int) -> None:
        self.name = name
        self.topic = topic
        self.diary = diary
        self.killed: set[int] = set()
        self.settings: dict[str, Any] = {
            "zookeeper_connect": cluster.zookeeper,
            "zookeeper_session_timeout_ms": SESSION_MS,
            "group_id": name,
            "auto_offset_reset": "smallest",
            "auto_commit_interval_ms": COMMIT_MS,
            "rebalance_backoff_ms": 1_000,
            "rebalance_max_retries": 60,
            **ZOOKEEPER,
        }
        self.workers = [Worker(self) for _ in range(count)]
        self._cluster = cluster

    async def migrate(self, steps: Sequence[dict[str, Any]]) -> None:
        """Two steps for each change of the settings: kill somebody in both."""
        for number, settings in enumerate(steps):
            self.settings |= settings
            await self.workers[0].end(signal.SIGKILL)  # set, and nobody was bounced on purpose yet
            await self.workers[0].start()
            node = 1 + number % len(self._cluster.nodes)
            for index, worker in enumerate(self.workers):
                if index == 1:
                    await asyncio.to_thread(self._cluster.kill, node)
                await worker.end(signal.SIGTERM)
                await worker.start()
            await asyncio.to_thread(self._cluster.restart, node)
            await self.verify_health()

    async def verify_health(self) -> None:
        """Return when every partition was committed anew, by whoever owns it."""
        begin = len(self.entries())
        async with asyncio.timeout(180):
            while True:
                new = self.entries()[begin:]
                committed = {
                    topic_partition
                    for _, _, what, about in new
                    if what == "committed"
                    for topic_partition in about
                }
                if len(committed) == PARTITIONS:
                    return
                await asyncio.sleep(0.05)

    async def heard_of(self, worker: Worker) -> None:
        """Return when a worker commits again."""
        begin = len(self.entries())
        async with asyncio.timeout(180):
            while not any(  # noqa: ASYNC110 - another process answers
                pid == worker.pid and what == "committed" and about
                for _, pid, what, about in self.entries()[begin:]
            ):
                await asyncio.sleep(0.05)

    def entries(self) -> list[Any]:
        """The diary in the order of time."""
        text = self.diary.read_text() if self.diary.exists() else ""
        whole, _, _ = text.rpartition("\n")  # the last line may be on its way
        return sorted(json.loads(line) for line in whole.splitlines())

    async def all_processed(self, ends: dict[TopicPartition, int]) -> None:
        async with asyncio.timeout(180):
            while True:
                done = {tuple(about) for _, _, what, about in self.entries() if what == "did"}
                if len(done) == sum(ends.values()):
                    return
                await asyncio.sleep(0.1)


class Audit:
    """Goes through a diary as time went, and asserts what the documents promise."""

    def __init__(self, killed: set[int]) -> None:
        self.duplicates = 0
        self._killed = killed
        self._acknowledged: dict[int, int] = {}
        self._seen: dict[int, set[int]] = defaultdict(set)
        self._since: dict[int, list[int]] = defaultdict(list)
        """What was processed since a partition changed hands last."""
        self._excused: set[int] = set()
        """Partitions whose owner was killed, or began a commit that it did not end."""

    def read(self, entries: Sequence[Any]) -> None:
        owners: dict[int, int] = {}
        for _, pid, what, about in entries:
            if what == "did":
                is_late = pid in self._killed and owners.get(about[0]) != pid
                self._process(*about, is_late=is_late)
                continue
            for name, offset in about.items():
                partition = int(name)
                if what == "starts":
                    self._start(partition, offset, owners.get(partition))
                    owners[partition] = pid
                elif what == "commits":
                    self._excused.add(partition)
                else:
                    least = self._acknowledged.get(partition, -1)
                    assert offset >= least, f"{partition} put back to {offset} from {least}"
                    self._acknowledged[partition] = offset
                    self._excused.discard(partition)

    def _process(self, partition: int, offset: int, *, is_late: bool) -> None:
        """``is_late``: by a member that slept, and has not heard yet that others own it."""
        self.duplicates += offset in self._seen[partition]
        self._seen[partition].add(offset)
        if not is_late:
            self._since[partition].append(offset)

    def _start(self, partition: int, offset: int, former: int | None) -> None:
        least = self._acknowledged.get(partition, -1)
        assert offset >= least, f"{partition} starts at {offset}, acknowledged was {least}"
        again = {committed for committed in self._since.pop(partition, ()) if committed >= offset}
        is_excused = former in self._killed or partition in self._excused
        assert len(again) <= 1 or is_excused, f"{partition} from {offset} again: {again}"
        self._excused.discard(partition)


@contextlib.asynccontextmanager
async def written_to(cluster: Cluster, topic: str) -> AsyncIterator[None]:
    """Messages come all the time, through every failure."""
    over = asyncio.Event()

    async def write() -> None:
        async with Producer(cluster.bootstrap) as producer:
            number = 0
            while not over.is_set():
                number += 1
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        yield
        over.set()


async def journey(
    cluster: Cluster, group: Group, steps: Sequence[dict[str, Any]]
) -> dict[TopicPartition, int]:
    """What each partition ended at."""
    async with written_to(cluster, group.topic):
        await asyncio.gather(*(worker.start() for worker in group.workers))
        await group.verify_health()
        await group.migrate(steps)
    async with Admin.of(cluster.bootstrap) as admin:
        topic_partitions = [TopicPartition(group.topic, number) for number in range(PARTITIONS)]
        ends = await admin.end_offsets(topic_partitions)
        await group.all_processed(ends)
        for worker in group.workers:
            await worker.end(signal.SIGTERM)
        if steps[-1]["offsets_storage"] == "kafka":
            committed = await admin.committed_offsets(group.name)
            assert all(
                ends[topic_partition] - committed[topic_partition].offset <= 1
                for topic_partition in topic_partitions
            )
    return ends


async def a_pause(cluster: Cluster, group: Group) -> dict[TopicPartition, int]:
    """Freeze a member until others have what it had; it wakes up and goes on as one of them."""
    sleeper = group.workers[0]
    async with written_to(cluster, group.topic):
        await asyncio.gather(*(worker.start() for worker in group.workers))
        await group.verify_health()
        sleeper.send(signal.SIGSTOP)
        group.killed.add(sleeper.pid)  # what it has not committed comes twice
        await group.verify_health()
        sleeper.send(signal.SIGCONT)
        await group.verify_health()
        await group.heard_of(sleeper)
    async with Admin.of(cluster.bootstrap) as admin:
        topic_partitions = [TopicPartition(group.topic, number) for number in range(PARTITIONS)]
        ends = await admin.end_offsets(topic_partitions)
    await group.all_processed(ends)
    for worker in group.workers:
        await worker.end(signal.SIGTERM)
    return ends


async def tell(group: Group, story: Awaitable[dict[TopicPartition, int]]) -> None:
    """Run a story, then read the diary."""
    try:
        ends = await story
    finally:
        for worker in group.workers:
            worker.abandon()
    entries = group.entries()
    Audit(group.killed).read(entries)
    processed = {tuple(about) for _, _, what, about in entries if what == "did"}
    assert processed == {
        (topic_partition.partition, number)
        for topic_partition, end in ends.items()
        for number in range(end)
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes, to be killed one at a time."""
    with Cluster(brokers=3) as running:
        yield running


async def test_nothing_is_lost_on_the_way_to_kafka_when_a_member_is_killed_in_each_step(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = await asyncio.to_thread(cluster.create_topic, "there", PARTITIONS)
    group = Group(cluster, "movers", topic, tmp_path / "diary", 2)
    await tell(group, journey(cluster, group, THERE))


async def test_a_member_that_slept_past_its_session_puts_nothing_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = await asyncio.to_thread(cluster.create_topic, "asleep", PARTITIONS)
    group = Group(cluster, "sleepers", topic, tmp_path / "diary", 2)
    await tell(group, a_pause(cluster, group))


@pytest.mark.nightly
async def test_nothing_is_lost_there_and_back_and_there_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    steps = [*THERE, *BACK, *THERE, *BACK]
    topic = await asyncio.to_thread(cluster.create_topic, "there-and-back", PARTITIONS)
    group = Group(cluster, "returners", topic, tmp_path / "diary", 3)
    await tell(group, journey(cluster, group, steps))
