"""How long a restarted coordinator takes to answer for its last group, and what offsets weigh.

    python -m benchmarks.load [--keys N] [--commits N] [--groups N] [--partitions N] [--directory D]

A log of ``--commits`` commits to ``--keys`` keys is written with the shipped log, spread over the
offsets partitions. Then, each in a process of its own: all bytes are read once in order and no
more (what any load costs at least); the partitions are loaded from the log alone until the last
group is answered; the same once snapshots are there. Where the records do not fit into one
segment, snapshots come when segments are rolled; here they are written at the end of the log.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.runtime.gc_tuning import FirstLoadFreeze, tune
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log_manager import LogManager
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC, Caller
from barnabas.coordinator.terms import LoadState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import leader_and_isr
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, Topic
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.records.batch import build_batch
from benchmarks.report import machine

NOW_MS: Final = 1_795_219_200_000
BATCH_COMMITS: Final = 100
TOPICS: Final = 20
FOREVER_MIN: Final = 1_000_000_000


class _Around:
    """A node that is alone."""

    lag_max_s = 30.0

    def now(self) -> float:
        return 0.0

    def live_nodes(self) -> tuple[int, ...]:
        return (1,)

    def propose(self, change: Any) -> None:
        raise AssertionError("one replica is always in sync")


class _Following:
    def follow(self, partition: Partition) -> None:
        raise AssertionError("one replica follows nobody")

    def stop(self, partition: Partition) -> None:
        return None

    def wake(self) -> None:
        return None


class _Topics:
    """Every topic there is, led by nobody else."""

    def partition_count(self, topic: str) -> int | None:
        return 1 << 30

    def missing_partition_error(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def coordinator_endpoint(self, partition: int, listener: str) -> None:
        return None

    def may_lead(self, partition: int) -> bool:
        return False

    def lacks_offsets_topic(self) -> bool:
        return False

    def create_offsets_topic(self) -> None:
        return None


class NodeWithoutSockets:
    """Storage, partitions and coordinator of a node, without its sockets."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.logs = LogManager(
            DiskFiles(),
            [options.directory],
            LogConfig(),
            lambda topic: {"cleanup.policy": "compact", "segment.bytes": "104857600"},
            lambda: NOW_MS,
            intervals=StorageSettings(),
            random=random.Random(1),
        )
        self.partitions: list[Partition] = []

    async def open(self) -> None:
        """Load the logs and take every partition."""
        await self.logs.load()
        replicas = ReplicaManager(
            1, self.logs, knows=lambda *_: True, context=_Around(), fetchers=_Following()
        )
        for index in range(self.options.partitions):
            log = self.logs.create(OFFSETS_TOPIC, index, None)
            state = leader_and_isr.PartitionState(
                partition_index=index,
                leader=1,
                leader_epoch=log.epochs.latest + 1,
                controller_epoch=1,
                isr=[1],
                replicas=[1],
            )
            topic = leader_and_isr.TopicState(topic_name=OFFSETS_TOPIC, partition_states=[state])
            order = leader_and_isr.LeaderAndIsrRequest(topic_states=[topic])
            at_once(replicas.apply_leader_and_isr(order, lambda: ErrorCode.NONE))
            self.partitions.append(replicas.led(OFFSETS_TOPIC, index))
        loop = asyncio.get_running_loop()
        self.coordinator = GroupCoordinator(
            node_id=1,
            config=CoordinatorConfig(retention_min=FOREVER_MIN),
            log=StateLogPort(replicas, OFFSETS_TOPIC, loop),
            topics=_Topics(),
            zookeeper_offsets=None,
            loop=loop,
            now_ms=lambda: NOW_MS,
            random=random.Random(1),
        )
        self.coordinator.when_loaded = once = FirstLoadFreeze()
        self.coordinator.loader.after_slice = once.after_slice
        self.coordinator.start(self.options.partitions)

    async def load(self) -> None:
        """Lead everything; returns when every group is served."""
        self.running = asyncio.create_task(self.coordinator.run())
        for partition in self.partitions:
            self.coordinator.on_elected(partition.index, partition.leader_epoch)
        terms = self.coordinator.registry.terms()
        while any(term.load_state is not LoadState.OWNED for term in terms):
            assert not any(term.load_state is LoadState.FAILED for term in terms)
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Stop without writing anything."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        for log in self.logs.logs():
            log.retire()


def keys_of(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Group, topic and partition of every key, group by group."""
    a_group = max(1, options.keys // options.groups)
    for number in range(options.keys):
        group, place = divmod(number, a_group)
        yield f"group-{group:06d}", f"topic-{place % TOPICS:02d}", place // TOPICS


async def write(options: argparse.Namespace) -> dict[str, float]:
    """Commit to all keys in turn until there are enough commits."""
    node = NodeWithoutSockets(options)
    await node.open()
    by_partition: list[list[bytes]] = [[] for _ in range(options.partitions)]
    for group, topic, index in keys_of(options):
        key = offset_key(group, topic, index)
        by_partition[group_partition(group, options.partitions)].append(key)
    for round_ in range(-(-options.commits // options.keys)):
        value = offset_value(round_, 0, "", NOW_MS + round_)
        for partition, keys in zip(node.partitions, by_partition, strict=True):
            for start in range(0, len(keys), BATCH_COMMITS):
                pairs = [(key, value) for key in keys[start : start + BATCH_COMMITS]]
                data = build_batch(pairs, timestamp_ms=NOW_MS + round_)
                partition.append(data, acks=1, is_client=False)
    size = sum(partition.log.size for partition in node.partitions)
    await node.logs.close()
    return {"bytes": size}


async def read(options: argparse.Namespace) -> dict[str, float]:
    """All bytes in order, in pieces like those of a load."""
    began, busy, count = time.perf_counter(), time.process_time(), 0
    for path in sorted(options.directory.glob("*/*.log")):
        with path.open("rb", buffering=0) as file:
            while piece := file.read(1 << 18):
                count += len(piece)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    return {"seconds": seconds, "cpu": busy, "bytes": count}


async def load(options: argparse.Namespace) -> dict[str, float]:
    """From the election to the first answer of the last group, and the memory that it takes."""
    node = NodeWithoutSockets(options)
    await node.open()
    tune()
    before, began, busy = resident_bytes(), time.perf_counter(), time.process_time()
    stalls = asyncio.create_task(longest_stall())
    await node.load()
    group, topic, index = list(keys_of(options))[-1]
    answers: list[Any] = []
    request = OffsetFetchRequest(
        group_id=group, topics=[Topic(name=topic, partition_indexes=[index])]
    )
    node.coordinator.offset_fetch(request, 7, Caller("bench", "here"), answers.append)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    stalls.cancel()
    offset = answers[0].topics[0].partitions[0].committed_offset
    assert offset == -(-options.commits // options.keys) - 1, offset
    gc.collect()
    weight = (resident_bytes() - before) / options.keys
    await node.close()
    worst = await stalls
    return {"seconds": seconds, "cpu": busy, "bytes_each": weight, "stall_ms": worst * 1000}


async def longest_stall() -> float:
    """CPU seconds for which the loop was kept from a neighbour, at worst, until cancelled."""
    worst, last = 0.0, time.process_time()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            worst, last = max(worst, now - last), now
    except asyncio.CancelledError:
        return worst


async def save(options: argparse.Namespace) -> dict[str, float]:
    """Write the snapshots, as a stop in order does with time enough."""
    node = NodeWithoutSockets(options)
    await node.open()
    await node.load()
    standbys = node.coordinator.standbys
    standbys.tail_min = 1
    began = time.perf_counter()
    await standbys.save(within_s=3600)
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in options.directory.glob("*/offsets-cache*"))
    await node.close()
    return {"seconds": seconds, "bytes": size}


STEPS: Final[dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, dict[str, float]]]]] = {
    "write": write,
    "read": read,
    "load": load,
    "save": save,
}


def resident_bytes() -> int:
    """What this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def step(name: str, options: argparse.Namespace) -> dict[str, float]:
    """One step in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.load", "--step", name]
    for option in ("keys", "commits", "groups", "partitions", "directory"):
        command += [f"--{option}", str(getattr(options, option))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Write a log, load it both ways, print figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, help="12 a key unless told otherwise")
    parser.add_argument("--groups", type=int, help="one for each 100 keys unless told otherwise")
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--directory", type=Path, help="where the log is made, and kept")
    parser.add_argument("--step", choices=tuple(STEPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.commits = options.commits or 12 * options.keys
    options.groups = options.groups or max(1, options.keys // 100)
    if options.step:
        print(json.dumps(asyncio.run(STEPS[options.step](options))))
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-load-") as directory:
        options.directory = options.directory or Path(directory)
        report(options)


def report(options: argparse.Namespace) -> None:
    """All steps in order, then a table."""
    print(f"machine: {machine()}")
    written = step("write", options)
    print(
        f"{options.keys} keys of {options.groups} groups, {options.commits} commits, "
        f"{written['bytes'] / 1e6:.0f} MB in {options.partitions} partitions"
    )
    step("read", options)
    plain = step("read", options)
    cold = step("load", options)
    saved = step("save", options)
    warm = step("load", options)
    print(f"snapshots: {saved['bytes'] / 1e6:.0f} MB, written in {saved['seconds']:.1f} s")
    print("| what | s | CPU s | CPU of a plain read | bytes an offset | longest stall, CPU ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(f"| plain read of the log | {plain['seconds']:.2f} | {plain['cpu']:.2f} | 1 | | |")
    for name, found in (("load from the log", cold), ("load from snapshots", warm)):
        print(
            f"| {name} | {found['seconds']:.2f} | {found['cpu']:.2f} "
            f"| {found['cpu'] / plain['cpu']:.1f} | {found['bytes_each']:.0f} "
            f"| {found['stall_ms']:.1f} |"
        )


if __name__ == "__main__":
    main()
