"""What grows with a cluster, and by which law: groups, connections, topics, partitions, nodes.

    python -m benchmarks.growth [--what groups connections partitions topics beacons traffic]
                                [--most N] [--nodes N]

Each curve is a table of sizes ten times apart, and below each column the exponent of what grows
with the size (growth_law.py): 1 is linear, 0 does not grow. Groups and connections are measured in
this process, as hot_path.py does; partitions and topics on a node of its own with a ZooKeeper;
beacons and the controller's requests in memory, for clusters of up to ``--nodes`` nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.messages import (
    leader_and_isr,
    list_groups,
    offset_commit,
    update_metadata,
)
from benchmarks import growth_beacons, growth_law, growth_node, hot_path
from benchmarks.bulk_answers import Asker, frame
from benchmarks.commit import zookeeper_address
from benchmarks.report import machine
from benchmarks.server_process import resident_bytes

ROUNDS = 30
PARTITIONS_A_TOPIC = 100
ZOOKEEPER_MB = 2048
TRAFFIC_PARTITIONS = 10_000
REPLICAS = 3
Rows = list[tuple[int, Sequence[float]]]


def _own_memory() -> int:
    gc.collect()
    return resident_bytes(int(Path("/proc/self").readlink().name))


async def _least_us(work: Sequence[bytes], asker: Asker) -> float:
    """CPU of this thread for one of these requests, the least of some rounds of all."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        for asked in work:
            await asker.ask(asked)
        best = min(best, (time.thread_time_ns() - began) / len(work))
    return best / 1e3


def _commit(group: str) -> bytes:
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.Topic(
                name="load",
                partitions=[offset_commit.Partition(partition_index=0, committed_offset=5)],
            )
        ],
    )
    return frame(8, 8, request, is_flexible=True)


async def groups(most: int) -> Rows:
    """Groups that have committed."""
    rows: Rows = []
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        async with hot_path.node(Path(directory)) as node:
            asker, count, before = Asker(node.listener), 0, _own_memory()
            listing = frame(16, 4, list_groups.ListGroupsRequest(), is_flexible=True)
            for size in growth_law.sizes(10, most):
                for number in range(count, size):
                    await asker.ask(_commit(f"group-{number:06}"))
                count = size
                some = [_commit(f"group-{number:06}") for number in range(0, size, size // 10)]
                commit = await _least_us(some, asker)
                listed = await _least_us([listing], asker)
                memory = max(0.1, (_own_memory() - before) / 1e6)
                rows.append((size, (commit, listed / 1e3, memory)))
    return rows


async def connections(most: int) -> Rows:
    """Connections that are idle, beside one that commits."""
    rows: Rows = []
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        async with hot_path.node(Path(directory)) as node:
            idle: list[Asker] = []
            asker, before = Asker(node.listener), _own_memory()
            some = [_commit(f"group-{number}") for number in range(10)]
            for size in growth_law.sizes(10, most):
                while len(idle) < size:
                    idle.append(Asker(node.listener))
                    await idle[-1].ask(some[0])
                commit = await _least_us(some, asker)
                memory = max(0.1, (_own_memory() - before) / 1e6)
                rows.append((size, (commit, memory)))
    return rows


def traffic(nodes: int) -> Sequence[float]:
    """What a controller of so many nodes tells them; 10,000 partitions, three replicas each."""
    ids = list(range(1, nodes + 1))
    brokers = [
        update_metadata.Broker(
            id=node,
            endpoints=[
                update_metadata.Endpoint(
                    host=f"node-{node:03}.example", port=port, listener=name, security_protocol=0
                )
                for name, port in (("CLIENT", 9092), ("INTERNAL", 9093))
            ],
        )
        for node in ids
    ]

    def states(kind: type) -> list[object]:
        return [
            kind(
                partition_index=index,
                leader=ids[index % nodes],
                isr=[ids[(index + one) % nodes] for one in range(min(REPLICAS, nodes))],
                replicas=[ids[(index + one) % nodes] for one in range(min(REPLICAS, nodes))],
            )
            for index in range(TRAFFIC_PARTITIONS)
        ]

    def told(some: Sequence[object]) -> bytes:
        topic = update_metadata.TopicState(topic_name="t", partition_states=some)  # type: ignore[arg-type]
        request = update_metadata.UpdateMetadataRequest(
            controller_id=1, live_brokers=brokers, topic_states=[topic]
        )
        return encode(request, 7)

    everything = states(update_metadata.PartitionState)
    led = states(leader_and_isr.PartitionState)[: TRAFFIC_PARTITIONS * REPLICAS // nodes]
    topic = leader_and_isr.TopicState(topic_name="t", partition_states=led)  # type: ignore[arg-type]
    orders = encode(leader_and_isr.LeaderAndIsrRequest(controller_epoch=1, topic_states=[topic]), 5)
    began = time.thread_time_ns()
    whole = told(everything)
    cpu_ms = (time.thread_time_ns() - began) / 1e6
    return (
        len(told(everything[:1])) * nodes / 1e3,
        (len(whole) + len(orders)) * nodes / 1e6,
        cpu_ms,
    )


TRAFFIC_COLUMNS = (
    "one partition changes, kB told",
    "takeover, MB told",
    "encoded once for all nodes, ms of CPU",
)


def print_node(sizes: Sequence[int], partitions_a_topic: int, title: str) -> None:
    """A curve of a real node."""
    rows: Rows = []
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        zookeeper_address(None, Path(directory) / "zookeeper", heap_mb=ZOOKEEPER_MB) as address,
    ):
        root = f"{address}/growth"
        node = growth_node.GrowingNode(Path(directory) / "node", root, partitions_a_topic)
        for size, costs in node.grow(sizes):
            print(f"{size} done", file=sys.stderr, flush=True)
            rows.append((size, costs))
    print(growth_law.table(title, growth_node.COLUMNS, rows), flush=True)


async def beacons(sizes: Sequence[int]) -> Rows:
    """A curve of clusters; in a loop, since transports have timers."""
    return [(size, growth_beacons.costs(size)) for size in sizes]


def main() -> None:
    """Print the curves that the command line names."""
    kinds = ("groups", "connections", "partitions", "topics", "beacons", "traffic")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--what", nargs="*", choices=kinds, default=kinds)
    parser.add_argument("--most", type=int, default=10_000, help="groups, connections, partitions")
    parser.add_argument("--nodes", type=int, default=100, help="of a cluster in memory")
    options = parser.parse_args()
    cluster = [size for size in (3, 10, 30, 100, 300) if size <= options.nodes]
    print(f"machine: {machine()}\n")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if "groups" in options.what:
            columns = ("a commit, us", "ListGroups, ms", "memory, MB")
            print(growth_law.table("groups", columns, runner.run(groups(options.most))), "\n")
        if "connections" in options.what:
            beside = ("a commit beside them, us", "memory, MB")
            found = runner.run(connections(options.most))
            print(growth_law.table("connections", beside, found), "\n")
        if "beacons" in options.what:
            found = runner.run(beacons(cluster))
            print(growth_law.table("nodes", growth_beacons.COLUMNS, found), "\n")
    if "traffic" in options.what:
        told = [(size, traffic(size)) for size in cluster]
        print(growth_law.table("nodes", TRAFFIC_COLUMNS, told), "\n")
    if "partitions" in options.what:
        sizes = list(growth_law.sizes(PARTITIONS_A_TOPIC, options.most))
        print_node(sizes, PARTITIONS_A_TOPIC, f"partitions, {PARTITIONS_A_TOPIC} a topic")
    if "topics" in options.what:
        print_node(list(growth_law.sizes(10, options.most)), 1, "topics of one partition")


if __name__ == "__main__":
    main()
