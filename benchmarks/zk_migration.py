"""zk-migrate over many groups against the embedded ZooKeeper: groups a second by step, and memory.

    python -m benchmarks.zk_migration --groups 100000 --partitions 1

What a session's first query costs whatever it does is timed by itself.
Source: docs/spec/pipeline.md §4, job 3.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql import SparkSession

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.zookeeper.interface import (
    ConnectionLost,
    Create,
    MultiFailed,
    NodeExists,
    ZooKeeper,
)
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline.jobs import zk_migrate
from barnabas.pipeline.jobs.inputs import JobSource
from barnabas.pipeline.jobs.reports.report import Report
from barnabas.pipeline.jobs.zk_migrate import ZkMigrateConfig
from barnabas.pipeline.session import spark_session
from barnabas.protocol.zookeeper import znodes
from benchmarks.process_tree import process_tree

TOPIC: Final = "migrated"
_LOOK_EVERY_S: Final = 0.5
_PAUSE_S: Final = 0.5
_JAVA_OPTIONS: Final = "_JAVA_OPTIONS"
_HEAP: Final = "-Xmx1g"
"""In development ZooKeeper has 128 MiB, which hold 10,000 groups and not 100,000."""
_MULTI: Final = 50
"""So many groups' znodes are made by one request."""


async def fill(hosts: str, groups: int, partitions: int) -> None:
    """``groups`` groups with an offset in each of ``partitions`` partitions."""
    session = await connect(hosts)
    try:
        for first in range(0, groups, _MULTI * 8):
            last = min(groups, first + _MULTI * 8)
            await asyncio.gather(
                *(
                    _made(session, range(at, min(at + _MULTI, last)), partitions)
                    for at in range(first, last, _MULTI)
                )
            )
    finally:
        await session.close()


async def _made(session: ZooKeeper, numbers: range, partitions: int) -> None:
    operations = []
    for number in numbers:
        group = f"{znodes.CONSUMERS}/group-{number:07}"
        operations += [Create(path) for path in (group, f"{group}/offsets",
                                                 f"{group}/offsets/{TOPIC}")]  # fmt: skip
        operations += [
            Create(f"{group}/offsets/{TOPIC}/{index}", str(number).encode())
            for index in range(partitions)
        ]
    while True:
        try:
            await session.multi(*operations)
        except ConnectionLost:  # perhaps applied nevertheless: the next try will see it
            await asyncio.sleep(_PAUSE_S)
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise
            return
        else:
            return


async def create_topic(bootstrap: str, partitions: int) -> None:
    """The topic that the offsets are about."""
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=partitions)])


class ProcessMonitor:
    """Our processes by what they are: the most memory of one while the block runs, their CPU."""

    def __init__(self) -> None:
        self.peak_mb: dict[str, int] = defaultdict(int)
        self._ticks: dict[tuple[str, str], int] = {}
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._watching.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._watching.join()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds until now, of processes that have ended too, as they were last seen."""
        self._look()
        spent: dict[str, float] = defaultdict(float)
        for (name, _), ticks in list(self._ticks.items()):
            spent[name] += ticks / os.sysconf("SC_CLK_TCK")
        return spent

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        for process in process_tree():
            with contextlib.suppress(OSError):  # it ended
                name = _name_of((process.folder / "cmdline").read_bytes())
                size = int(process.words[21]) * os.sysconf("SC_PAGESIZE") >> 20
                self.peak_mb[name] = max(self.peak_mb[name], size)
                self._ticks[name, process.folder.name] = int(process.words[11]) + int(
                    process.words[12]
                )


def _name_of(command: bytes) -> str:
    for word, name in (
        (b"QuorumPeerMain", "zookeeper"),
        (b"SparkSubmit", "spark"),
        (b"pyspark", "worker"),
        (b"benchmarks", "driver"),
    ):
        if word in command:
            return name
    return "node"


@contextlib.contextmanager
def large_zookeeper() -> Iterator[Cluster]:
    """A cluster of one node whose ZooKeeper has room for millions of znodes."""
    os.environ[_JAVA_OPTIONS] = _HEAP  # comes after the flags of development
    try:
        cluster = Cluster(1)
        cluster.start()
    finally:
        del os.environ[_JAVA_OPTIONS]
    try:
        yield cluster
    finally:
        cluster.stop()


def measure(groups: int, partitions: int, connections: int) -> dict[str, Any]:
    """Every step in turn on a fresh cluster of one node."""
    found: dict[str, Any] = {"groups": groups, "offsets": groups * partitions}
    found["load"] = os.getloadavg()
    with (
        large_zookeeper() as cluster,
        tempfile.TemporaryDirectory() as scratch,
        ProcessMonitor() as ours,
    ):
        asyncio.run(create_topic(cluster.bootstrap, partitions))
        started = time.monotonic()
        asyncio.run(fill(cluster.zookeeper, groups, partitions))
        found["fill_s"] = round(time.monotonic() - started, 1)
        started = time.monotonic()
        spark = spark_session("zk-migration", "local[2]", {"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        _step(spark, "plan", f"{scratch}/none", cluster, connections, "^no group$")
        found["start_s"] = round(time.monotonic() - started, 1)
        for step in zk_migrate.STEPS:
            started, before = time.monotonic(), ours.cpu_s()
            report = _step(spark, step, f"{scratch}/plan", cluster, connections, "")
            seconds = time.monotonic() - started
            assert report.figures["groups"] == groups, report.figures
            found[step] = {
                "seconds": round(seconds, 1),
                "groups_per_s": round(groups / seconds),
                "cpu_s": {
                    name: round(spent - before[name], 1) for name, spent in ours.cpu_s().items()
                },
                "findings": report.findings,
            }
        spark.stop()
        found["peak_mb"] = dict(ours.peak_mb)
    found["load_after"] = os.getloadavg()
    return found


def _step(
    spark: SparkSession, step: str, plan: str, cluster: Cluster, connections: int, groups: str
) -> Report:
    config = ZkMigrateConfig(
        step=step,
        plan=plan,
        zookeeper=cluster.zookeeper,
        source=JobSource(bootstrap=cluster.bootstrap, groups=groups),
        connections=connections,
    )
    return zk_migrate.run(spark, config)


def main(words: Sequence[str] | None = None) -> None:
    """Print figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--connections", type=int, default=8)
    chosen = parser.parse_args(words)
    print(json.dumps(measure(chosen.groups, chosen.partitions, chosen.connections), indent=1))


if __name__ == "__main__":
    main()
