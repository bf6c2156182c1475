"""Copy jobs and readers on the cluster in memory, driven by chance, that write a history; pure.

Jobs of one group copy each record of a source partition into a target partition, some records a
transaction. They crash, freeze, and wake up again when others have their partitions.
Source: docs/spec/transactions.md §9.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from .history import (
    Copied,
    History,
    OffsetReading,
    Outcome,
    Partition,
    Reading,
    Row,
    Transaction,
)
from .model_cluster import OFFSETS, Bug, ModelCluster, NotYet, Refused

T = TypeVar("T")

SOURCES: Final = tuple(("in", number) for number in range(3))
TARGETS: Final = tuple(("out", number) for number in range(2))
JOBS: Final = 3
RECORDS: Final = 25
"""In each source partition."""
PATIENCE: Final = 8_000
"""Steps after which a run is left that does not come to an end, for its cluster is not sound."""

Steps = Generator[None, None, None]


class Job:
    """One producer and member of the group, from its start until it is refused."""

    def __init__(self, world: World, slot: int, instance: int) -> None:
        self.producer = f"job{slot}"
        self.member = f"job{slot}.{instance}"
        self.wanted: dict[Partition, int] = {}
        """Its partitions from its next transaction on, and the generations it has them in."""
        self.steps = self._run(instance)
        self._world = world
        self._number = 0
        self._open: Transaction | None = None

    @property
    def is_busy(self) -> bool:
        """It has a transaction of which nobody was told yet."""
        return self._open is not None

    def finish(self, outcome: Outcome) -> None:
        """What is known of the transaction that is open, if one is."""
        if self._open is not None:
            self._world.history.transactions.append(replace(self._open, outcome=outcome))
            self._open = None

    def _run(self, instance: int) -> Steps:
        asked = float(self._world.now)
        epoch = yield from _until(lambda: self._world.cluster.init(self.producer))
        began = asked, float(self._world.now)
        try:
            while True:
                yield
                yield from self._transaction(epoch, instance, *began)
        except Refused:
            self.finish(Outcome.ABORTED)

    def _transaction(self, epoch: int, instance: int, asked: float, initialised: float) -> Steps:
        world, cluster = self._world, self._world.cluster
        positions: dict[Partition, int] = {}
        generations = dict(self.wanted)
        for partition in generations:
            positions[partition] = yield from _until(_asked(cluster.position, partition))
        copies, offsets = self._read(positions)
        if not copies:
            return
        self._number += 1
        self._open = Transaction(
            name=f"{self.member}.{self._number}",
            producer=self.producer,
            instance=instance,
            asked=asked,
            initialised=initialised,
            ending=0.0,
            outcome=Outcome.UNKNOWN,
            copies=copies,
            positions=positions,
            offsets=offsets,
        )
        for copy in copies:
            yield from _until(lambda to=copy.target: cluster.add(self.producer, epoch, to))  # type: ignore[misc]
            row, name = copy.row, self._open.name
            cluster.produce(self.producer, epoch, copy.target, row.origin, name)
            yield
        yield from _until(lambda: cluster.add(self.producer, epoch, OFFSETS))
        cluster.stage(self.producer, epoch, generations, offsets)
        yield
        is_commit = world.random.random() < 0.8
        self._open = replace(self._open, ending=float(world.now))
        yield from _until(lambda: cluster.end(self.producer, epoch, is_commit=is_commit))
        yield  # a crash here leaves whoever asks in the dark
        self.finish(Outcome.COMMITTED if is_commit else Outcome.ABORTED)

    def _read(self, positions: dict[Partition, int]) -> tuple[list[Copied], dict[Partition, int]]:
        copies: list[Copied] = []
        offsets: dict[Partition, int] = {}
        for partition, start in positions.items():
            end = min(start + self._world.random.randint(1, 4), RECORDS)
            for row in self._world.cluster.read(partition, start, end):
                copies.append(Copied(partition, row, _target(row)))
                offsets[partition] = end
        return copies, offsets


def _target(row: Row) -> Partition:
    return TARGETS[sum(row.origin.encode()) % len(TARGETS)]


def _asked(ask: Callable[[Partition], T], partition: Partition) -> Callable[[], T]:
    return lambda: ask(partition)


def _until(ask: Callable[[], T]) -> Generator[None, None, T]:
    """Ask until it is served; raises Refused."""
    while True:
        yield
        try:
            return ask()
        except NotYet:
            continue


class World:
    """The cluster, its jobs and readers, and what happens to them."""

    def __init__(self, seed: int, bug: Bug | None = None) -> None:
        self.random = Random(seed)
        self.cluster = ModelCluster(self.random, bug)
        self.history = History()
        self.now = 0
        self._jobs: list[Job] = []
        self._frozen: list[Job] = []
        """They crashed as far as all others can see, and may wake up."""
        self._instances = 0
        self._read_until: dict[Partition, int] = dict.fromkeys(TARGETS, 0)
        for partition in SOURCES:
            for number in range(RECORDS):
                self.cluster.log(partition).append("", f"{partition[1]}/{number}", "")
        for slot in range(JOBS):
            self._jobs.append(self._started(slot))
        for partition in SOURCES:
            self._give(partition)

    def run(self) -> History:
        """Copy everything, hurting jobs on the way; then let all come to rest."""
        while not self._is_copied() and self.now < PATIENCE:
            self._step()
        for job in [*self._frozen, *self._jobs]:
            self._drain(job)
        for slot in range(JOBS):
            self.cluster.expire(f"job{slot}")
        while self.cluster.write_marker():
            pass
        for partition in TARGETS:
            self._observe(partition, is_whole=True)
        self.history.logs = {
            partition: self.cluster.log(partition).final() for partition in (*SOURCES, *TARGETS)
        }
        self.history.offsets = dict(self.cluster.offsets)
        return self.history

    def _step(self) -> None:
        self.now += 1
        luck = self.random.random()
        if luck < 0.6:
            self._advance(self.random.randrange(JOBS))
        elif luck < 0.8:
            self.cluster.write_marker()
        elif luck < 0.9:
            self._observe(self.random.choice(TARGETS), is_whole=False)
            self._observe_offset(self.random.choice(SOURCES))
        elif luck < 0.94:
            self._give(self.random.choice(SOURCES))
        elif luck < 0.96:
            self._crash(self.random.randrange(JOBS))
        elif luck < 0.97:
            self.cluster.expire(f"job{self.random.randrange(JOBS)}")
        elif self._frozen:
            self._wake()

    def _advance(self, slot: int) -> None:
        job = self._jobs[slot]
        if next(job.steps, job) is job:  # it was refused: another one takes its place
            self._replace(slot)

    def _crash(self, slot: int) -> None:
        job = self._jobs[slot]
        if self.random.random() < 0.5:
            self._frozen.append(job)
        else:
            job.finish(Outcome.UNKNOWN)
        self._replace(slot)

    def _wake(self) -> None:
        """A frozen job goes on for a while, as if nothing had happened."""
        job = self.random.choice(self._frozen)
        for _ in range(self.random.randint(1, 20)):
            if next(job.steps, job) is job:
                self._frozen.remove(job)
                return

    def _replace(self, slot: int) -> None:
        lost = self._jobs[slot].wanted
        self._jobs[slot] = self._started(slot)
        for partition in list(lost):
            self._give(partition)

    def _started(self, slot: int) -> Job:
        self._instances += 1
        return Job(self, slot, self._instances)

    def _give(self, partition: Partition) -> None:
        """A rebalance: from its next transaction on, one other job has it."""
        for job in self._jobs:
            job.wanted.pop(partition, None)
        self.random.choice(self._jobs).wanted[partition] = self.cluster.assign(partition)

    def _observe(self, partition: Partition, *, is_whole: bool) -> None:
        start = self._read_until[partition]
        stable = self.cluster.stable(partition)
        end = stable if is_whole else self.random.randint(min(start, stable), stable)
        if end <= start:
            return
        self._read_until[partition] = end
        rows = self.cluster.read(partition, start, end)
        reading = Reading(
            reader="reader", partition=partition, start=start, end=end, rows=rows,
            last_stable=stable, high_watermark=self.cluster.log(partition).end,
        )  # fmt: skip
        self.history.readings.append(reading)

    def _observe_offset(self, partition: Partition) -> None:
        try:
            offset = self.cluster.position(partition)
        except NotYet:
            return
        self.history.offset_readings.append(
            OffsetReading(reader="reader", partition=partition, offset=offset)
        )

    def _is_copied(self) -> bool:
        return all(self.cluster.offsets.get(one, 0) == RECORDS for one in SOURCES)

    def _drain(self, job: Job) -> None:
        """Let a job end what it has begun; one that was fenced is refused."""
        job.wanted = {}
        for _ in range(PATIENCE):
            self.now += 1
            self.cluster.write_marker()
            if next(job.steps, job) is job:
                return
            if not job.is_busy:
                return
        job.finish(Outcome.UNKNOWN)
