"""zk-migrate over many groups against the embedded ZooKeeper: seconds and offsets a second by step.

    python -m benchmarks.zk_migration --groups 100000 --partitions 1

Source: issue 8, item 6; pipeline.md section 12, job 3.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.admin import Admin
from barnabas.client.descriptions import NewTopic
from barnabas.client.ensemble import Create, ZooKeeper
from barnabas.client.zookeeper import connect
from barnabas.console.development_cluster import Cluster
from barnabas.pipeline.jobs import zk_migrate
from barnabas.pipeline.jobs.inputs import Source
from barnabas.pipeline.jobs.zk_migrate import ZkMigrateConfig
from barnabas.pipeline.session import spark_session
from barnabas.protocol import znodes

TOPIC: Final = "migrated"
_MULTI: Final = 50
"""So many groups' znodes are made by one request."""


async def fill(hosts: str, groups: int, partitions: int) -> None:
    """``groups`` groups with an offset in each of ``partitions`` partitions."""
    session = await connect(hosts)
    try:
        for first in range(0, groups, _MULTI * 16):
            last = min(groups, first + _MULTI * 16)
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
            Create(f"{group}/offsets/{TOPIC}/{each}", str(number).encode())
            for each in range(partitions)
        ]
    await session.multi(*operations)


async def create_topic(bootstrap: str, partitions: int) -> None:
    """The topic that the offsets are about."""
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=partitions)])


def measure(groups: int, partitions: int, connections: int) -> dict[str, Any]:
    """Every step in turn on a fresh cluster of one node."""
    found: dict[str, Any] = {"groups": groups, "offsets": groups * partitions}
    with Cluster(1) as cluster, tempfile.TemporaryDirectory() as scratch:
        asyncio.run(create_topic(cluster.bootstrap, partitions))
        started = time.monotonic()
        asyncio.run(fill(cluster.zookeeper, groups, partitions))
        found["filled_s"] = round(time.monotonic() - started, 1)
        spark = spark_session("zk-migration", "local[2]", {"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        for step in zk_migrate.STEPS:
            config = ZkMigrateConfig(
                step=step,
                plan=f"{scratch}/plan",
                zookeeper=cluster.zookeeper,
                source=Source(bootstrap=cluster.bootstrap),
                connections=connections,
            )
            started = time.monotonic()
            report = zk_migrate.run(spark, config)
            seconds = time.monotonic() - started
            found[step] = {
                "seconds": round(seconds, 1),
                "offsets_per_s": round(groups * partitions / seconds),
                "findings": report.findings,
            }
        spark.stop()
    return found


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
