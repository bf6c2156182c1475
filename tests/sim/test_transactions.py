"""Transactions on three shipped nodes: never half, never undone, whatever befalls the nodes.

Source: docs/spec/transactions.md §3 check T3.10, §10.3; checks T3.1, T3.2, T3.4 and T3.6 by their
consequences: all markers of a transaction are equal, and a commit that was answered stands.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, Machine, eventually, simulated_cluster
from tests.sim.numbered_faults import inject
from tests.sim.test_replication import InjectFaults, inject_fault, start_later
from tests.sim.transactional_client import GaveUp, TransactionalClient
from tests.sim.transactional_producers import Outcome, Transaction, TransactionalProducer

TOPIC = "t"
PARTITIONS = [(TOPIC, index) for index in range(3)]
PRODUCERS = ("a", "b", "c")
ROUNDS = 6
SEEDS = range(1, 5)
SEEDS_OF_DEATHS = range(1, 3)
SETTLED_S = 120.0
SETTINGS = {
    "transaction_state_log_num_partitions": "2",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
}


async def created(cluster: Cluster, *topics: tuple[str, int]) -> None:
    """Topics with so many partitions; the one of this file if none is named."""
    wanted = [
        create_topics.Topic(
            name=name,
            num_partitions=count,
            replication_factor=len(NODES),
            configs=[create_topics.Config(name="min.insync.replicas", value="2")],
        )
        for name, count in topics or [(TOPIC, len(PARTITIONS))]
    ]
    request = create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=5000)

    async def ask() -> bool | None:
        for node in NODES:
            answer = await cluster.ask(node, request, 5)
            if answer is not None:
                codes = {one.error_code for one in answer.topics}
                if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return True
        return None

    await eventually(ask)


async def settled(
    cluster: Cluster, partitions: Iterable[tuple[str, int]] = PARTITIONS
) -> bool | None:
    """True once every replica of every partition is alike, and no transaction is open in any."""
    for topic, index in partitions:
        found = [machine.partition(topic, index) for machine in cluster.machines.values()]
        held = [one for one in found if one is not None]
        led = [one for one in held if one.is_leader]
        ends = {one.log.end_offset for one in held}
        if len(held) < len(NODES) or len(led) != 1 or len(ends) != 1:
            return None
        if {led[0].high_watermark, led[0].last_stable_offset} != ends:
            return None
    return True


@dataclass(frozen=True, slots=True)
class Ended:
    """One record of a transaction as the log has it, and the marker behind it."""

    offset: int
    producer_id: int
    marker: Marker


def contents(machine: Machine, topic: str, index: int) -> bytes:
    """Every byte of a replica."""
    replica = machine.partition(topic, index)
    assert replica is not None
    log, data = replica.log, bytearray()
    offset = log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, bytes_max=1 << 20, end=log.end_offset, at_least_one=True)
        for position, _ in batch.iterate(piece):
            offset = batch.next_offset(piece, position)
        data += piece
    return bytes(data)


def endings(data: bytes) -> Iterator[tuple[bytes, Ended]]:
    """The name of each transactional record with its marker; raises where one has none."""
    open_records: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for position, _ in batch.iterate(data):
        producer_id = batch.producer_id(data, position)
        for record in batch.records(data, position):
            if not batch.is_control(data, position):
                assert batch.is_transactional(data, position)
                open_records[producer_id].append((record.offset, bytes(record.value or b"")))
                continue
            marker = parse_marker(record.key)
            assert marker is not None
            for offset, name in open_records.pop(producer_id, ()):
                yield name, Ended(offset, producer_id, marker)
    assert not open_records, f"open for ever: {dict(open_records)}"


def check(transaction: Transaction, found: dict[tuple[str, int], list[Ended]]) -> None:
    """One transaction against the logs."""
    outcome = transaction.outcome
    for partition, ends in found.items():
        assert partition in transaction.partitions, "a record where nobody wrote it"
        assert len(ends) == 1, f"{transaction.name!r} stands {len(ends)} times in {partition}"
    for partition, offset in transaction.written.items():
        assert found[partition][0].offset == offset, "an acknowledged record moved or went"
    markers = {ends[0].marker for ends in found.values()}
    assert len(markers) <= 1, f"{transaction.name!r} is half committed"
    if outcome is Outcome.COMMITTED:
        assert markers == {Marker.COMMIT}, f"{transaction.name!r} was answered, and is aborted"
    elif outcome is not Outcome.UNKNOWN:
        assert markers <= {Marker.ABORT}, f"{transaction.name!r} is committed: {outcome.value}"


def compare(cluster: Cluster, transactions: Sequence[Transaction]) -> None:
    """Every record of every transaction has one fate, on every replica the same."""
    found: dict[bytes, dict[tuple[str, int], list[Ended]]] = defaultdict(lambda: defaultdict(list))
    for topic, index in PARTITIONS:
        copies = {contents(machine, topic, index) for machine in cluster.machines.values()}
        assert len(copies) == 1, "the replicas differ"
        for name, ended in endings(*copies):
            found[name][topic, index].append(ended)
    by_name = {transaction.name: transaction for transaction in transactions}
    assert found.keys() <= by_name.keys()
    for name, transaction in by_name.items():
        check(transaction, found[name])


async def begun(producer: TransactionalClient) -> bool | None:
    try:
        await producer.begin_anew()
    except GaveUp:
        return None
    return True


async def in_sync(cluster: Cluster) -> bool | None:
    """True once every node is in every set that stands in ZooKeeper."""
    for topic, count in (
        (TOPIC, len(PARTITIONS)),
        (TRANSACTION_TOPIC, int(SETTINGS["transaction_state_log_num_partitions"])),
    ):
        for index in range(count):
            data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(topic, index), None)
            if len(znodes.PartitionState.from_json(data).isr) < len(NODES):
                return None
    return True


async def hurt(cluster: Cluster, machine: Machine) -> None:
    """One accident; after a power cut, what was not flushed is on one machine less."""
    if await inject_fault(cluster, machine) == "power":
        await eventually(partial(in_sync, cluster))


async def one_by_one(cluster: Cluster) -> None:
    """Accidents of one machine at a time, some before the last one has healed."""
    for _ in range(ROUNDS):
        await asyncio.sleep(cluster.loop.random.uniform(0.1, 1.5))
        machine = cluster.machines[cluster.loop.random.choice(NODES)]
        await inject(machine.name, partial(hurt, cluster, machine))


async def all_at_once(cluster: Cluster) -> None:
    """Every process dies: whoever coordinates next knows nothing of any topic."""

    async def kill_all() -> None:
        machines = cluster.machines.values()
        await asyncio.gather(*(machine.kill() for machine in machines))
        await asyncio.gather(*(start_later(cluster, machine) for machine in machines))

    for _ in range(3):
        await asyncio.sleep(cluster.loop.random.uniform(0.5, 3.0))
        await inject("all", kill_all)
        await asyncio.sleep(cluster.loop.random.uniform(1.0, 10.0))


async def scenario(cluster: Cluster, faults: InjectFaults) -> list[Transaction]:
    await cluster.start()
    await created(cluster)
    producers = [TransactionalProducer(cluster, name, PARTITIONS) for name in PRODUCERS]
    for producer in producers:
        await eventually(partial(begun, producer))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(producer.run()) for producer in producers]
        await faults(cluster)
        await asyncio.sleep(5.0)
        for task in running:
            task.cancel()
    for producer in producers:
        await eventually(partial(begun, producer))  # aborts what was open
    await eventually(lambda: settled(cluster), SETTLED_S)
    transactions = [one for producer in producers for one in producer.transactions]
    compare(cluster, transactions)
    await cluster.stop()
    return transactions


def simulate(seed: int, faults: InjectFaults = one_by_one) -> None:
    """One history of accidents."""
    with simulated_cluster(seed, **SETTINGS) as (runner, cluster):
        transactions = runner.run(scenario(cluster, faults))
    told = [transaction.outcome for transaction in transactions]
    assert told.count(Outcome.COMMITTED) > 20, "little was tried"
    assert told.count(Outcome.ABORTED) > 5, "little was tried"


@pytest.mark.parametrize("seed", seeds(SEEDS, range(5, 1000)))
def test_every_marker_of_a_transaction_is_the_same_and_an_answered_commit_stands(seed: int) -> None:
    """Check T3.10."""
    simulate(seed)


@pytest.mark.parametrize("seed", seeds(SEEDS_OF_DEATHS, range(3, 200)))
def test_coordinators_that_know_no_topic_yet_drop_no_partition_of_a_transaction(seed: int) -> None:
    """Check T3.6: the marker of a partition that is not in the metadata is not given up."""
    simulate(seed, all_at_once)
