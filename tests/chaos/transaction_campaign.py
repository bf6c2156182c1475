"""Transactional copy jobs of three client libraries under faults, and the verdict on all they did.

    python -m tests.chaos.transaction_campaign [--rounds 12] [--seed 1] [--records 20000]
        [--batch 100] [--kafka]

copies records from one topic to a second and on to a third while jobs, nodes and ZooKeeper are
hurt, then judges the history (tests/transactions/checker.py); ends with 1 when anything is amiss.
With ``--kafka`` the cluster is a node of Apache Kafka, and only jobs are hurt.
Source: docs/spec/reliability.md §3 and §4; docs/spec/transactions.md §9.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.admin.transaction_admin import open_in
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.producer.producer import Producer
from barnabas.console.development.child_process import ChildProcess
from barnabas.console.development.cluster import Cluster
from tests.transactions.checker import Anomaly, check
from tests.transactions.history import History, OffsetReading, Partition, Transaction

from .committed_reader import CommittedReader, final_logs
from .copy_job import LOST
from .copy_journal import CopyTask, is_sending, read_journal, value_of

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 3
FIRST, MIDDLE, LAST = TOPICS = ("copied-0", "copied-1", "copied-2")
SETTINGS: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
}
OWN_SETTINGS: Final = {**SETTINGS, "min.insync.replicas": "2"}
"""For three nodes of ours, one of which may be dead."""
BACKLOG: Final = 30
"""So many transactions' worth of records at most waits to be copied."""
BATCH: Final = 100
"""Records in a transaction, at most."""
CHUNK: Final = 500
"""Records that are written at once, and are copied between two faults, at least."""
PATIENCE_S: Final = 240.0
REST_S: Final = 60.0
"""By then every time-out of a transaction is over."""
STOP_S: Final = 150.0
"""A job ends within so long: three calls of its client may have to time out before, 30 s each."""
SAID_S: Final = 60.0
"""So long a job that is asked where it is may take to say so."""
DUMPED: Final = "most recent call first"
"""What faulthandler says before the calls of a thread."""
PAUSE_S: Final = 8.0
"""Longer than a job's session: others take its partitions."""
HUNG_S: Final = 30.0
"""No call of librdkafka's has leave to take longer before it sends its offsets."""
HUNG: Final = "librdkafka hung"
POLL_S: Final = 0.05
MOST_SHOWN: Final = 4
"""Findings of one kind."""
TEXT_MAX: Final = 300

Tell = Callable[[str], None]


class Fault(Enum):
    """What happens in a round."""

    JOB_KILL = "kill -9 of a job"
    JOB_STOP = "SIGSTOP of a job"
    NODE_KILL = "kill -9 of a node"
    NODE_STOP = "SIGSTOP of a node"
    NODE_TERM = "SIGTERM of a node"
    ZOOKEEPER_STALL = "SIGSTOP of ZooKeeper"


JOB_FAULTS: Final = (Fault.JOB_KILL, Fault.JOB_STOP)
ALL_FAULTS: Final = tuple(Fault)


class Server(Protocol):
    """The cluster under test."""

    @property
    def bootstrap(self) -> str:
        """What clients are given."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One job of a pipeline, whoever runs it at the moment."""

    kind: str
    source: str
    target: str

    @property
    def group(self) -> str:
        """All jobs that copy the same topic share its partitions."""
        return f"copiers-of-{self.source}"


SLOTS: Final = (
    Slot("librdkafka", FIRST, MIDDLE),
    Slot("barnabas", FIRST, MIDDLE),
    Slot("librdkafka", FIRST, MIDDLE),
    Slot("aiokafka", MIDDLE, LAST),
)


class Jobs:
    """The processes, one a slot; who ends is followed by another instance."""

    def __init__(
        self, bootstrap: str, folder: Path, slots: Sequence[Slot] = SLOTS, batch: int = BATCH
    ) -> None:
        self.slots = slots
        self.batch = batch
        self.findings: list[str] = []
        self.instances: Counter[int] = Counter()
        self.hung = 0
        """So many of librdkafka's were killed because they did nothing any more."""
        self._bootstrap = bootstrap
        self._folder = folder
        self._running: dict[int, ChildProcess] = {}
        self._killed: set[int] = set()

    def keep_running(self) -> None:
        """Start what does not run."""
        for number, slot in enumerate(self.slots):
            job = self._running.get(number)
            if job is not None and job.is_running:
                if self._is_hung(number):
                    self.hung += 1
                    self.kill(number)
                continue
            if job is not None:
                self._judge(number, job)
            self._running[number] = self._started(number, slot)

    def kill(self, number: int) -> None:
        """As ``kill -9`` does; one that has ended by itself is judged by how."""
        if self._running[number].is_running:
            self._killed.add(number)
            self._running[number].kill()

    def pause(self, number: int) -> None:
        """Freeze it."""
        self._running[number].pause()

    def resume(self, number: int) -> None:
        """Let it go on, as if nothing had happened."""
        self._running[number].resume()

    def stop(self) -> None:
        """Let each end after its transaction; kill who does not."""
        for job in self._running.values():
            job.resume()
            job.ask_to_stop()
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline and any(one.is_running for one in self._running.values()):
            time.sleep(POLL_S)
        for number, job in self._running.items():
            is_late = job.is_running
            if is_late:
                self._end(number, job)
            self._judge(number, job, f"did not stop within {STOP_S:g} s" if is_late else None)
        self._running.clear()

    def transactions(self) -> list[Transaction]:
        """What all instances wrote down."""
        return [
            transaction
            for number, slot in enumerate(self.slots)
            for instance in range(1, self.instances[number] + 1)
            if (path := self._journal(number, instance)).exists()
            for transaction in read_journal(path, slot.source)
        ]

    def _started(self, number: int, slot: Slot) -> ChildProcess:
        self.instances[number] += 1
        instance = self.instances[number]
        task = CopyTask(
            bootstrap=self._bootstrap,
            source=slot.source,
            target=slot.target,
            partitions=PARTITIONS,
            group=slot.group,
            producer=f"{slot.kind}-{number}",
            instance=instance,
            journal=str(self._journal(number, instance)),
            batch=self.batch,
        )
        command = [
            sys.executable,
            "-m",
            "tests.chaos.copy_job",
            slot.kind,
            json.dumps(asdict(task)),
        ]
        log = self._folder / f"job-{number}.log"
        paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return ChildProcess(command, log, environment={**os.environ, "PYTHONPATH": paths})

    def _journal(self, number: int, instance: int) -> Path:
        return self._folder / f"job-{number}-{instance}.jsonl"

    def _is_hung(self, number: int) -> bool:
        """Whether librdkafka has been sending its offsets for too long (docs/status.md)."""
        journal = self._journal(number, self.instances[number])
        return (
            self.slots[number].kind == "librdkafka"
            and journal.exists()
            and time.time() - journal.stat().st_mtime > HUNG_S
            and is_sending(journal)
        )

    def _end(self, number: int, job: ChildProcess) -> None:
        """It was asked to stop and did not: its library hangs, or it says where it is."""
        if self._is_hung(number):
            self.hung += 1
            self._killed.add(number)
        else:
            os.kill(job.pid, signal.SIGUSR1)
            _await_dump(job)
        job.kill()

    def _judge(self, number: int, job: ChildProcess, how: str | None = None) -> None:
        """A job of ours ends in order, or because its client said so, or was killed.

        One that was started a moment ago does not hear yet that it is to stop.
        """
        has_begun = self._journal(number, self.instances[number]).exists()
        is_fair = job.exit_code in (0, LOST) or number in self._killed
        is_fair |= not has_begun and job.exit_code == -signal.SIGTERM
        self._killed.discard(number)
        if not is_fair and self.slots[number].kind != "aiokafka":  # which lets other errors out
            how = how or f"ended with {job.exit_code}"
            self.findings.append(f"job {number} {how}:\n{job.last_words()}")


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    copied: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    instances: int = 0
    readings: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.copied} records copied twice, transactions {dict(self.transactions)}, "
            f"{self.instances} instances of jobs, {self.readings} readings, "
            f"faults {dict(self.faults)}, {len(self.anomalies) + len(self.findings)} findings"
        )

    def told(self) -> list[str]:
        """How many findings of each kind there are, and the first of each."""
        counts = Counter(one.kind for one in self.anomalies)
        texts = [f"{count} times {kind.value}" for kind, count in counts.items()]
        for kind in counts:
            many = [str(one)[:TEXT_MAX] for one in self.anomalies if one.kind is kind]
            texts += many[:MOST_SHOWN]
        return texts + self.findings


class Campaign:
    """One run on one cluster."""

    def __init__(
        self, admin: Admin, bootstrap: str, jobs: Jobs, faults: Callable[[Fault], Any], seed: int
    ) -> None:
        self.report = Report()
        self.patience_s = PATIENCE_S
        self._admin = admin
        self._bootstrap = bootstrap
        self._jobs = jobs
        self._hurt = faults
        self._random = Random(seed)
        self._began = time.monotonic()
        self._fed = 0
        self._is_fed = asyncio.Event()
        self._is_over = asyncio.Event()
        self._reader = CommittedReader(admin.cluster, "reader")
        self._offsets: list[OffsetReading] = []

    async def run(self, rounds: Sequence[Fault], records: int, tell: Tell) -> Report:
        """All rounds, at least so many records, then the verdict."""
        await self._create_topics()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed())
            tasks.create_task(self._read())
            tasks.create_task(self._look_at_offsets())
            tasks.create_task(self._keep_running())
            share = max(CHUNK, records // (len(rounds) + 1))  # faults all the way, not at first
            for fault in rounds:
                await self._await_copies(self.report.copied + share)
                tell(f"{self.report.copied} copied after {self._seconds()} s; {fault.value}")
                self.report.faults[fault.value] += 1
                await self._round(fault)
            await self._await_copies(records)
            self._is_fed.set()
            await self._await_copies(None)
            self._is_over.set()
        await asyncio.to_thread(self._jobs.stop)
        tell(f"{self.report.copied} copied after {self._seconds()} s; now the verdict")
        return await self._verdict()

    def _seconds(self) -> int:
        return round(time.monotonic() - self._began)

    async def _round(self, fault: Fault) -> None:
        if fault not in JOB_FAULTS:
            await asyncio.to_thread(self._hurt, fault)
            return
        victim = self._random.randrange(len(self._jobs.slots))
        if fault is Fault.JOB_KILL:
            await asyncio.sleep(self._random.random())
            self._jobs.kill(victim)
            return
        self._jobs.pause(victim)
        await asyncio.sleep(PAUSE_S)
        self._jobs.resume(victim)

    async def _await_copies(self, count: int | None) -> None:
        """Until so many have arrived, or all that were fed."""
        async with asyncio.timeout(self.patience_s):
            while True:
                if self.report.copied >= (self._fed if count is None else count):
                    return
                await asyncio.sleep(POLL_S)

    async def _create_topics(self) -> None:
        await self._admin.create_topics(
            NewTopic(name=name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
            for name in TOPICS
        )

    async def _feed(self) -> None:
        async with Producer(self._bootstrap) as producer:
            while not self._is_fed.is_set():
                if self._fed - self.report.copied > BACKLOG * self._jobs.batch:
                    await asyncio.sleep(POLL_S)
                    continue
                for number in range(self._fed, self._fed + CHUNK):
                    partition = number % PARTITIONS
                    value = value_of(f"{partition}/{number}", "")
                    producer.send_soon(FIRST, value, partition=partition)
                await producer.flush()
                self._fed += CHUNK

    async def _read(self) -> None:
        """Everything that is shown of the copies, as it comes."""
        while not self._is_over.is_set():
            for topic in (MIDDLE, LAST):
                for number in range(PARTITIONS):
                    partition: Partition = (topic, number)
                    before = len(self._reader.readings)
                    await self._reader.read(partition)
                    if topic == LAST:
                        found = self._reader.readings[before:]
                        self.report.copied += sum(len(one.rows) for one in found)
            await asyncio.sleep(POLL_S)

    async def _look_at_offsets(self) -> None:
        """What the groups' offsets are said to be, as the console asks: plainly."""
        while not self._is_over.is_set():
            for topic, offset in (await self._committed()).items():
                self._offsets.append(OffsetReading(reader="admin", partition=topic, offset=offset))
            await asyncio.sleep(POLL_S * 4)

    async def _committed(self) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for group in {slot.group for slot in self._jobs.slots}:
            try:
                committed = await self._admin.committed_offsets(group)
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                continue
            for place, one in committed.items():
                found[place.topic, place.partition] = one.offset
        return found

    async def _keep_running(self) -> None:
        while not self._is_over.is_set():
            self._jobs.keep_running()
            await asyncio.sleep(POLL_S)

    async def _verdict(self) -> Report:
        await self._await_rest()
        history = History(
            transactions=self._jobs.transactions(),
            readings=self._reader.readings,
            offset_readings=self._offsets,
            logs=await final_logs(self._admin.cluster, dict.fromkeys(TOPICS, PARTITIONS)),
            offsets=await self._committed(),
        )
        self.report.transactions.update(one.outcome.value for one in history.transactions)
        self.report.instances = sum(self._jobs.instances.values())
        self.report.readings = len(history.readings)
        self.report.anomalies = await asyncio.to_thread(check, history)
        self.report.findings = self._jobs.findings
        if self._jobs.hung:
            self.report.faults[HUNG] = self._jobs.hung
        return self.report

    async def _await_rest(self) -> None:
        """No transaction is open any more, or never will be: the checker says which."""
        places = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        try:
            async with asyncio.timeout(REST_S):
                while True:
                    if not open_in(await self._admin.describe_producers(places)):
                        return
                    await asyncio.sleep(POLL_S * 4)
        except TimeoutError:
            return


def _await_dump(job: ChildProcess) -> None:
    """Return when it has said where it is and says no more, or does not say so in time."""
    deadline, size = time.monotonic() + SAID_S, -1
    while time.monotonic() < deadline and job.is_running:
        before, size = size, job.log.stat().st_size
        if size == before and DUMPED in job.log.read_text(errors="replace"):
            return
        time.sleep(POLL_S)


class NodeFaults:
    """Faults of nodes of ours and of their ZooKeeper."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = Random(seed)

    def __call__(self, fault: Fault) -> None:
        """One of them, and its end."""
        victim = self._random.randint(1, len(self._cluster.nodes))
        node = self._cluster.node(victim)
        if fault is Fault.NODE_STOP:
            node.pause()
            _sleep(self._random.uniform(0.5, 5.0))
            node.resume()
        elif fault is Fault.ZOOKEEPER_STALL:
            self._stall()
        else:
            if fault is Fault.NODE_KILL:
                node.kill()
            _sleep(self._random.uniform(0.0, 3.0))
            self._cluster.restart(victim)

    def _stall(self) -> None:
        pid = self._cluster.zookeeper_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            _sleep(self._random.uniform(0.5, 5.0))
        finally:
            os.kill(pid, signal.SIGCONT)


def _sleep(seconds: float) -> None:
    """So long the fault lasts."""
    time.sleep(seconds)


async def run(
    server: Server,
    faults: Callable[[Fault], Any],
    rounds: Sequence[Fault],
    *,
    seed: int,
    records: int,
    tell: Tell,
    slots: Sequence[Slot] = SLOTS,
    batch: int = BATCH,
    patience_s: float = PATIENCE_S,
) -> Report:
    """A whole run on a cluster that is up; whoever waits does so for ``patience_s`` at most."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="copies-")))
        jobs = Jobs(server.bootstrap, folder, slots, batch)
        stack.callback(jobs.stop)
        config = ClientConfig(api_timeout_ms=120_000, request_timeout_ms=5_000)
        admin = await stack.enter_async_context(Admin.of(server.bootstrap, config))
        campaign = Campaign(admin, server.bootstrap, jobs, faults, seed)
        campaign.patience_s = patience_s
        try:
            return await campaign.run(rounds, records, tell)
        except BaseException:
            _tell_last_words(folder, tell)
            raise


def _tell_last_words(folder: Path, tell: Tell) -> None:
    for log in sorted(folder.glob("*.log")):
        tell(f"{log.name}\n{log.read_text(errors='replace')[-3_000:]}")


def schedule(rounds: int, seed: int, faults: Sequence[Fault]) -> list[Fault]:
    """Every kind equally often, in an order that goes by the seed."""
    many = [faults[number % len(faults)] for number in range(rounds)]
    Random(seed).shuffle(many)
    return many


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=20_000, help="copy so many at least")
    parser.add_argument("--batch", type=int, default=BATCH, help="records in a transaction")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds of any wait")
    parser.add_argument("--kafka", action="store_true", help="a node of Apache Kafka")
    given = parser.parse_args()

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    sizes: dict[str, Any] = {
        "seed": given.seed,
        "records": given.records,
        "batch": given.batch,
        "tell": tell,
        "patience_s": given.patience,
    }
    if given.kafka:
        from tests.harness.deployments import KafkaCluster

        kafka = KafkaCluster(1, SETTINGS)
        try:
            rounds = schedule(given.rounds, given.seed, JOB_FAULTS)
            report = asyncio.run(run(kafka, _none, rounds, **sizes))
        finally:
            kafka.stop()
    else:
        with Cluster(3, settings=OWN_SETTINGS) as cluster:
            rounds = schedule(given.rounds, given.seed, ALL_FAULTS)
            hurt = NodeFaults(cluster, given.seed)
            report = asyncio.run(run(cluster, hurt, rounds, **sizes))
    tell(str(report))
    for text in report.told():
        tell(text)
    return 1 if report.anomalies or report.findings else 0


def _none(fault: Fault) -> None:
    raise AssertionError(f"{fault} on a cluster that is not to be hurt")


if __name__ == "__main__":
    sys.exit(main())
