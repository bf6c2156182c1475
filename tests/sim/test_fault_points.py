"""The moments that faults are aimed at are the moments that they are called after.

Source: docs/spec/transactions.md §2.6 and §3.4.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.coordinator.transactions.transaction_record import id_of, metadata_of
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.records import batch
from tests.sim.cluster import Cluster, Machine, eventually, simulated_cluster
from tests.sim.fault_points import ARRIVED_S, FaultPoints, Moment, Struck, watched
from tests.sim.test_transactions import PARTITIONS, SETTINGS, begun, contents, created
from tests.sim.transactional_producers import Outcome, TransactionalProducer


def has_prepared(machine: Machine, transactional_id: str) -> bool:
    """Whether the last record of an id in a replica of the transaction log is PrepareCommit."""
    state = None
    for index in range(int(SETTINGS["transaction_state_log_num_partitions"])):
        data = contents(machine, TRANSACTION_TOPIC, index)
        for position, _ in batch.iterate(data):
            for record in batch.records(data, position):
                if id_of(bytes(record.key or b"")) == transactional_id:
                    state = metadata_of(bytes(record.value or b"")).state
    return state is TransactionState.PREPARE_COMMIT


def ends_with_marker(machine: Machine, topic: str, index: int) -> bool:
    """Whether nothing is open in a replica to which one producer writes."""
    data = contents(machine, topic, index)
    *_, (position, _) = batch.iterate(data)
    return batch.is_control(data, position)


class Seen:
    """What stood where when it was the moment."""

    def __init__(self, cluster: Cluster, producer: TransactionalProducer) -> None:
        self.prepared: list[bool] = []
        """At the coordinator, then at the others."""
        self.outcome: Outcome
        """Of the last transaction whose end was asked for."""
        self.without_marker = 0
        self._cluster = cluster
        self._producer = producer

    def look(self, struck: Struck) -> None:
        machines = self._cluster.machines.values()
        others = [one for one in machines if one is not struck.machine]
        name = struck.transactional_id
        self.prepared = [has_prepared(one, name) for one in (struck.machine, *others)]
        told = [one.outcome for one in self._producer.transactions]
        self.outcome = next(one for one in reversed(told) if one is not Outcome.OPEN)
        self.without_marker = sum(
            not any(ends_with_marker(one, *place) for one in machines) for place in struck.held
        )


async def scenario(cluster: Cluster, points: FaultPoints, moment: Moment) -> Seen:
    """The first commit of a producer, looked at when it comes to a moment, and its end."""
    await cluster.start()
    await created(cluster)
    producer = TransactionalProducer(cluster, "a", PARTITIONS)
    await eventually(partial(begun, producer))
    seen = Seen(cluster, producer)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(producer.run())
        struck = await points.aim(moment, seen.look)
        if moment is Moment.APPENDED:
            await asyncio.sleep(ARRIVED_S)
            seen.look(struck)  # the followers have not got it meanwhile
        cluster.loop.network.heal()
        await eventually(partial(committed, producer))
        running.cancel()
    await cluster.stop()
    return seen


async def committed(producer: TransactionalProducer) -> bool | None:
    told = [one.outcome for one in producer.transactions]
    return True if Outcome.COMMITTED in told else None


def looked_at(moment: Moment, seed: int) -> Seen:
    with simulated_cluster(seed, **SETTINGS) as (runner, cluster):
        points = FaultPoints(cluster)
        with watched(points):
            return runner.run(scenario(cluster, points, moment))


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_appended_decision_is_in_the_leaders_log_alone(seed: int) -> None:
    seen = looked_at(Moment.APPENDED, seed)
    assert seen.prepared == [True, False, False]
    assert seen.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_committed_decision_is_in_another_log_and_nobody_was_told(seed: int) -> None:
    seen = looked_at(Moment.COMMITTED, seed)
    assert seen.prepared[0]
    assert any(seen.prepared[1:])
    assert seen.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_answered_commit_lacks_markers(seed: int) -> None:
    seen = looked_at(Moment.ANSWERED, seed)
    assert seen.outcome is Outcome.COMMITTED
    assert seen.without_marker > 0, "all that are held back are written"
