"""A transaction coordinator that others replaced vouches for nothing that it remembers.

It was cut off from ZooKeeper and all others, and does not know: another node leads its partition, a
newer producer has fenced the one that asks. An append would fail; what needs none must be asked of
the lease. Source: docs/spec/transactions.md §10.3; docs/spec/reliability.md §3.1.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn
from tests.harness.seeds import seeds
from tests.sim.cluster import SESSION_MS, Cluster, Machine, eventually, simulated_cluster
from tests.sim.test_transactions import SETTINGS, TOPIC, begun, created
from tests.sim.transactional_client import added_codes, adding, ending
from tests.sim.transactional_producers import TransactionalProducer

PARTITIONS = [(TOPIC, 0)]
PATIENCE_S = 2.0
"""Long enough to register anew and to hear who leads."""
Identity = tuple[str, int, int]


def verified(machine: Machine, identity: Identity) -> list[int]:
    """What the coordinator of one node says at once of a partition of a transaction."""
    assert machine.node is not None
    found: list[int] = []

    def respond(answer: add_partitions_to_txn.AddPartitionsToTxnResponse) -> None:
        for transaction in answer.results_by_transaction:
            for topic in transaction.topic_results:
                found.extend(one.partition_error_code for one in topic.results_by_partition)

    transactional_id, producer_id, producer_epoch = identity
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[
            add_partitions_to_txn.Transaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=True,
                topics=[add_partitions_to_txn.Topic(name=TOPIC, partitions=[0])],
            )
        ]
    )
    coordinator = machine.node._transaction_host.transactions
    coordinator.add_partitions_to_txn(request, 4, Caller("node", "n9"), respond)
    return found


def ended(machine: Machine, identity: Identity) -> list[int]:
    """What the coordinator of one node says at once to a commit."""
    assert machine.node is not None
    found: list[int] = []
    machine.node._transaction_host.transactions.end_txn(
        ending(*identity, is_commit=True),
        3,
        Caller("client", "c"),
        lambda answer: found.append(answer.error_code),
    )
    return found


async def added(cluster: Cluster, producer: TransactionalProducer) -> int | None:
    """Add the partition once; the node that has it in the transaction."""
    node = await producer.coordinator()
    if node is None:
        return None
    answer = await cluster.ask(node, adding(*producer.identity, PARTITIONS), 3)
    return node if answer is not None and added_codes(answer) == [ErrorCode.NONE] else None


async def committed(cluster: Cluster, producer: TransactionalProducer) -> bool | None:
    """The end is decided, and done: it is asked for again until CompleteCommit answers."""
    node = await producer.coordinator()
    if node is None:
        return None
    answer = await cluster.ask(node, ending(*producer.identity, is_commit=True), 3)
    return True if answer is not None and answer.error_code == ErrorCode.NONE else None


async def elsewhere(producer: TransactionalProducer, former: int) -> bool | None:
    node = await producer.coordinator()
    return None if node in (None, former) else True


async def scenario(cluster: Cluster, *, is_ended: bool) -> list[int]:
    """The codes that a deposed coordinator gave."""
    await cluster.start()
    await created(cluster)
    producer = TransactionalProducer(cluster, "a", PARTITIONS)
    await eventually(partial(begun, producer))
    former = await eventually(partial(added, cluster, producer))
    if is_ended:
        for _ in range(2):
            await eventually(partial(committed, cluster, producer))
    machine = cluster.machines[former]
    assert verified(machine, producer.identity) == [120 if is_ended else ErrorCode.NONE]
    machine.isolate()
    await asyncio.sleep(2 * SESSION_MS / 1000)
    await eventually(partial(elsewhere, producer, former))
    newer = TransactionalProducer(cluster, "a", PARTITIONS)
    await eventually(partial(begun, newer))
    assert newer.identity > producer.identity
    told = [*verified(machine, producer.identity), *ended(machine, producer.identity)]
    assert told, "it still leads, as far as it knows"
    machine.rejoin()
    until = cluster.loop.time() + PATIENCE_S
    while cluster.loop.time() < until:
        told += verified(machine, producer.identity)
        told += ended(machine, producer.identity)
        answer = await cluster.ask(former, adding(*producer.identity, PARTITIONS), 3)
        told += [] if answer is None else added_codes(answer)
        answer = await cluster.ask(former, ending(*producer.identity, is_commit=True), 3)
        told += [] if answer is None else [answer.error_code]
        await asyncio.sleep(0.0005)
    await cluster.stop()
    return told


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("seed", seeds(range(1, 4)))
def test_a_deposed_coordinator_vouches_for_nothing(seed: int, is_ended: bool) -> None:
    """Check T10.2: neither in an open transaction nor in one that was committed."""
    with simulated_cluster(seed, **SETTINGS) as (runner, cluster):
        told = runner.run(scenario(cluster, is_ended=is_ended))
    assert told
    assert ErrorCode.NONE not in told
