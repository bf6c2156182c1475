"""Three shipped nodes, seeded: nothing acknowledged by all is lost, whatever befalls one node.

Source: docs/spec/cluster.md §3.9 (the invariants, looked at all the time) and §3.11 checks R1, R4
and P4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics, fetch, list_offsets, metadata, produce
from barnabas.protocol.records import batch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, Machine, eventually, simulated_cluster
from tests.sim.numbered_faults import inject

TOPIC = "t"
ROUNDS = 6
SEEDS = range(1, 7)
SEEDS_OF_POWER_CUTS = range(1, 3)


class History:
    """What producers, who pause so long between two records, were told, and what readers saw."""

    def __init__(self, pause_s: float) -> None:
        self.acknowledged: dict[int, bytes] = {}
        """By offset."""
        self.read: dict[int, bytes] = {}
        self.latest: dict[int, int] = {}
        """By leader epoch."""
        self.sent = 0
        self.pause_s = pause_s

    def acknowledge(self, offset: int, value: bytes) -> None:
        assert self.acknowledged.setdefault(offset, value) == value

    def saw(self, data: bytes) -> None:
        """An offset never has two records, in the eyes of consumers."""
        for position, _ in batch.iterate(data):
            for record in batch.records(data, position):
                value = bytes(record.value or b"")
                assert self.read.setdefault(record.offset, value) == value

    def saw_latest(self, epoch: int, offset: int) -> None:
        """It never falls; only a leader that does not know of its end yet may tell an old one."""
        known = max((self.latest[e] for e in self.latest if e <= epoch), default=0)
        assert offset >= known, "the latest offset went backwards"
        self.latest[epoch] = offset


class Invariants:
    """Looked at between all that happens: docs/spec/cluster.md §3.9."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[tuple[int, int], int] = {}
        self._marks: dict[tuple[int, int], int] = {}

    def check(self) -> None:
        for machine in self._cluster.up():
            partition = machine.partition(TOPIC)
            if partition is None or not partition.is_leader:
                continue
            epoch = partition.leader_epoch
            assert self._leaders.setdefault((0, epoch), machine.id) == machine.id
            mark = partition.high_watermark
            assert mark >= self._marks.get((machine.id, epoch), 0)
            self._marks[machine.id, epoch] = mark
            assert mark <= partition.log.end_offset
            for node in partition.isr:
                known = partition.followers.get(node)
                assert known is None or known.log_end < 0 or mark <= known.log_end

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.003)
            self.check()


async def leader(cluster: Cluster) -> int | None:
    request = metadata.MetadataRequest(topics=[metadata.Topic(name=TOPIC)])
    for node in cluster.loop.random.sample(NODES, len(NODES)):
        if not cluster.machines[node].is_up:
            continue
        answer = await cluster.ask(node, request, 9)
        if answer is not None and answer.topics and answer.topics[0].partitions:
            found = answer.topics[0].partitions[0].leader_id
            return found if found in NODES else None
    return None


async def created(cluster: Cluster, factor: int = 3, **configs: str) -> None:
    topic = create_topics.Topic(
        name=TOPIC,
        num_partitions=1,
        replication_factor=factor,
        configs=[
            create_topics.Config(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ],
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)

    async def ask() -> bool | None:
        for node in NODES:
            answer = await cluster.ask(node, request, 5)
            if answer is not None:
                code = answer.topics[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return True
                assert code in (ErrorCode.NOT_CONTROLLER, 38, 7), answer.topics[0]
        return None

    await eventually(ask)


async def produce_all_the_time(cluster: Cluster, history: History, acks: int = -1) -> None:
    while True:
        node = await leader(cluster)
        if node is None:
            await asyncio.sleep(0.1)
            continue
        history.sent += 1
        value, now = b"%d/%d" % (acks, history.sent), cluster.loop.wall_ms()
        data = produce.Partition(
            index=0, records=bytes(batch.build_batch([(b"k", value)], timestamp_ms=now))
        )
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=2000,
            topic_data=[produce.Topic(name=TOPIC, partition_data=[data])],
        )
        answer = await cluster.ask(node, request, 7)
        if answer is not None:
            result = answer.responses[0].partition_responses[0]
            if result.error_code == ErrorCode.NONE and acks == -1:
                history.acknowledge(result.base_offset, value)
        await asyncio.sleep(cluster.loop.random.uniform(0, history.pause_s))


async def read_all_the_time(cluster: Cluster, history: History) -> None:
    offset = 0
    while True:
        await asyncio.sleep(0.05)
        node = await leader(cluster)
        if node is not None:
            offset = await read_some(cluster, history, node, offset)


async def read_some(cluster: Cluster, history: History, node: int, offset: int) -> int:
    bounds = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            list_offsets.Topic(
                name=TOPIC, partitions=[list_offsets.Partition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    answer = await cluster.ask(node, bounds, 5)
    if answer is not None and not answer.topics[0].partitions[0].error_code:
        found = answer.topics[0].partitions[0]
        history.saw_latest(found.leader_epoch, found.offset)
    request = fetch.FetchRequest(
        max_wait_ms=200,
        min_bytes=1,
        isolation_level=0,
        session_id=0,
        rack_id="",
        forgotten_topics_data=[],
        topics=[
            fetch.Topic(
                topic=TOPIC,
                partitions=[
                    fetch.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    answer = await cluster.ask(node, request, 11)
    if answer is None or answer.responses[0].partitions[0].error_code:
        return offset
    data = bytes(answer.responses[0].partitions[0].records or b"")
    history.saw(data)
    for position, _ in batch.iterate(data):
        offset = batch.next_offset(data, position)
    return offset


async def in_sync(cluster: Cluster) -> bool | None:
    """True once every node is in the set that stands in ZooKeeper."""
    data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(TOPIC, 0), None)
    return True if sorted(znodes.PartitionState.from_json(data).isr) == list(NODES) else None


async def alike(cluster: Cluster) -> bool | None:
    """True once every log has the same end, and it is committed at the leader."""
    found = [machine.partition(TOPIC) for machine in cluster.machines.values()]
    ends = {partition.log.end_offset for partition in found if partition is not None}
    led = [partition for partition in found if partition is not None and partition.is_leader]
    if len(ends) != 1 or len(led) != 1 or led[0].high_watermark not in ends:
        return None
    return True


def contents(machine: Machine) -> bytes:
    """Every byte of a replica."""
    partition = machine.partition(TOPIC)
    assert partition is not None
    log, data = partition.log, bytearray()
    offset = log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, bytes_max=1 << 20, end=log.end_offset, at_least_one=True)
        for position, _ in batch.iterate(piece):
            offset = batch.next_offset(piece, position)
        data += piece
    return bytes(data)


async def inject_fault(cluster: Cluster, machine: Machine) -> str:
    """One accident of one machine, and its end; returns which it was."""
    rng = cluster.loop.random
    kind = rng.choice(("kill", "power", "freeze", "cut", "stop"))
    others = [other for other in cluster.machines.values() if other is not machine]
    pause = rng.choice((0.0, 0.3, 2.0, 9.0))
    if kind in ("kill", "power"):
        await machine.kill(with_power_cut=kind == "power")
        await asyncio.sleep(pause)
        await machine.start()
    elif kind == "freeze":
        machine.isolate()
        await asyncio.sleep(pause)
        machine.rejoin()
    elif kind == "cut":
        cluster.loop.network.cut(machine.name, rng.choice(others).name)
        await asyncio.sleep(pause)
        cluster.loop.network.heal(machine.name)
    else:
        await machine.stop()
        await asyncio.sleep(pause)
        await machine.start()
    return kind


async def inject_one(cluster: Cluster, machine: Machine) -> None:
    """The same as a numbered fault."""
    await inject_fault(cluster, machine)


InjectFaults = Callable[[Cluster], Awaitable[None]]


async def one_by_one(cluster: Cluster) -> None:
    """Accidents of one machine at a time; the next when all are in sync again."""
    for _ in range(ROUNDS):
        await asyncio.sleep(cluster.loop.random.uniform(0.1, 1.5))
        machine = cluster.machines[cluster.loop.random.choice(NODES)]
        await inject(machine.name, partial(inject_one, cluster, machine))
        await eventually(lambda: in_sync(cluster))


async def start_later(cluster: Cluster, machine: Machine) -> None:
    """Whoever comes first may lead."""
    await asyncio.sleep(cluster.loop.random.uniform(0.0, 10.0))
    await machine.start()


async def lose_power(cluster: Cluster) -> None:
    machines = cluster.machines.values()
    await asyncio.gather(*(machine.kill(with_power_cut=True) for machine in machines))
    await asyncio.gather(*(start_later(cluster, machine) for machine in machines))


async def all_at_once(cluster: Cluster) -> None:
    """The power of all machines goes at the same moment."""
    for _ in range(2):
        await asyncio.sleep(cluster.loop.random.uniform(0.2, 1.0))
        await inject("all", partial(lose_power, cluster))
        await eventually(lambda: in_sync(cluster))


async def scenario(cluster: Cluster, faults: InjectFaults, pause_s: float) -> History:
    history, invariants = History(pause_s), Invariants(cluster)
    await cluster.start()
    await created(cluster, min_insync_replicas="2")
    await eventually(lambda: in_sync(cluster))
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(produce_all_the_time(cluster, history)),
            tasks.create_task(produce_all_the_time(cluster, history, acks=1)),
            tasks.create_task(read_all_the_time(cluster, history)),
            tasks.create_task(invariants.watch()),
        ]
        await faults(cluster)
        for task in running:
            task.cancel()
    await eventually(lambda: alike(cluster))
    compare(cluster, history)
    await cluster.stop()
    return history


def compare(cluster: Cluster, history: History) -> None:
    """The replicas are the same, byte for byte, and hold all that was told or seen."""
    copies = {contents(machine) for machine in cluster.machines.values()}
    assert len(copies) == 1, "the replicas differ"
    [data] = copies
    found: dict[int, bytes] = defaultdict(bytes)
    for position, _ in batch.iterate(data):
        for record in batch.records(data, position):
            found[record.offset] = bytes(record.value or b"")
    assert not {o: v for o, v in history.acknowledged.items() if found[o] != v}
    assert not {o: v for o, v in history.read.items() if found[o] != v}


@pytest.fixture
def no_committed_record_is_cut(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Invariant 8: a clean election makes nobody truncate below the high watermark."""
    caplog.set_level(logging.INFO)
    yield
    assert not [r for r in caplog.records if "lost committed records" in r.getMessage()]


@pytest.mark.usefixtures("no_committed_record_is_cut")
@pytest.mark.parametrize("seed", seeds(SEEDS, range(7, 1000)))
def test_what_all_in_sync_replicas_acknowledged_survives_any_one_node(seed: int) -> None:
    simulate(seed)


@pytest.mark.usefixtures("no_committed_record_is_cut")
@pytest.mark.parametrize("seed", seeds(SEEDS_OF_POWER_CUTS, range(3, 500)))
def test_with_every_record_on_disk_a_power_cut_of_all_nodes_takes_nothing(seed: int) -> None:
    simulate_power_cuts(seed)


def simulate_power_cuts(seed: int) -> None:
    """A follower's fetch says what is on its disk, where the topic asks for that."""
    simulate(seed, all_at_once, 0.001, log_flush_interval_messages="1")


def simulate(
    seed: int, faults: InjectFaults = one_by_one, pause_s: float = 0.05, **settings: str
) -> None:
    """One history."""
    with simulated_cluster(seed, **settings) as (runner, cluster):
        history = runner.run(scenario(cluster, faults, pause_s))
    assert len(history.acknowledged) > 20
    assert len(history.read) > 20
