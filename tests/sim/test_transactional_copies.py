"""Copy jobs on three shipped nodes: each record once, and the groups' offsets say what was copied.

Coordinators are killed, replaced and left without ZooKeeper at the very moments that decide a
commit (fault_points.py), producers die with them, and others that were taken for dead go on.
The history is judged by the checker of tests/transactions.
Source: docs/spec/transactions.md §2.6, §3.2, §3.4, §4 and §8 (T8.21); checks T3.1, T3.2 and T3.10.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Final

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records import batch
from barnabas.protocol.records.control import Marker, parse_marker
from tests.chaos.copy_journal import row_of, value_of
from tests.harness.seeds import seeds
from tests.sim.cluster import Cluster, eventually, simulated_cluster
from tests.sim.fault_points import ARRIVED_S, FaultPoints, Moment, Strike, Struck, watched
from tests.sim.numbered_faults import inject
from tests.sim.simulated_copiers import (
    FIRST,
    LAST,
    MIDDLE,
    SOURCES,
    TARGETS,
    WIDTH,
    Copiers,
    Onlooker,
    id_of,
)
from tests.sim.test_transactions import SETTINGS, begun, contents, created, settled
from tests.sim.transactional_client import Lookups, Partition, TransactionalClient
from tests.transactions.checker import check
from tests.transactions.history import FinalLog, History, Outcome, Row

COPIED: Final = {
    **SETTINGS,
    "offsets_topic_replication_factor": "3",
    "min_insync_replicas": "2",
}
PRELOADED: Final = 200
"""Records in each partition of the first topic."""
ALL: Final = [(FIRST, index) for index in range(WIDTH)] + TARGETS
SEEDS: Final = range(1, 4)
SETTLED_S: Final = 60.0


class Blow(Enum):
    """What befalls the coordinator at a moment."""

    KILL = "kill -9"
    ELECTION = "its session ends, others are elected"
    STALL = "ZooKeeper answers nobody"


BLOWS: Final = tuple(Blow)


async def preloaded(cluster: Cluster, index: int) -> bool | None:
    """The first topic's records, in one batch, sent once."""
    node = await Lookups(cluster).leader((FIRST, index))
    if node is None:
        return None
    entries = [(None, value_of(f"{index}/{number}", "")) for number in range(PRELOADED)]
    data = bytes(batch.build_batch(entries, timestamp_ms=cluster.loop.wall_ms()))
    topic = produce.Topic(name=FIRST, partition_data=[produce.Partition(index=index, records=data)])
    request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    answer = await cluster.ask(node, request, 9)
    code = answer.responses[0].partition_responses[0].error_code
    assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
    return True if code == ErrorCode.NONE else None


def falling(cluster: Cluster, blow: Blow) -> Strike:
    """Strike a coordinator with this when its moment has come."""

    def fall(struck: Struck) -> None:
        if blow is Blow.KILL:
            struck.machine.end_now()
        elif blow is Blow.ELECTION:
            cluster.loop.call_soon(struck.machine.session.expire)
        else:
            cluster.ensemble.stall()

    def strike(struck: Struck) -> None:
        if struck.moment is Moment.APPENDED:  # an answer that comes too early shall arrive
            cluster.loop.call_later(ARRIVED_S, fall, struck)
        else:
            fall(struck)

    return strike


async def strike(
    cluster: Cluster, copiers: Copiers, points: FaultPoints, moment: Moment, blow: Blow
) -> None:
    """One blow, perhaps the end of the producer whose commit it hit, and the recovery."""
    rng = cluster.loop.random
    struck = await points.aim(moment, falling(cluster, blow))
    await asyncio.sleep(rng.uniform(2, 5) * ARRIVED_S)
    if rng.random() < 0.7:
        copiers.kill(struck.transactional_id)
    if blow is not Blow.KILL:
        await asyncio.sleep(rng.choice((0.0, 0.5, 3.0)))
    cluster.loop.network.heal(struck.machine.name)
    if blow is Blow.KILL:
        await asyncio.sleep(rng.choice((0.0, 0.5, 8.0)))
        await struck.machine.start()
    elif blow is Blow.STALL:
        await asyncio.sleep(rng.choice((0.0, 4.0)))
        cluster.ensemble.go_on(0.5)


async def haunt(cluster: Cluster, copiers: Copiers) -> None:
    """A producer is frozen, replaced, and wakes up when its successor is at work."""
    rng = cluster.loop.random
    transactional_id = rng.choice([id_of(source) for source in SOURCES])
    former = copiers.jobs[transactional_id].live
    if rng.random() < 0.7:
        former.is_frozen_before_end = True
        await asyncio.sleep(1.0)
    former.freeze()
    if former is copiers.jobs[transactional_id].live:
        copiers.take_for_dead(transactional_id)
    await asyncio.sleep(rng.uniform(0.1, 2.0))
    former.thaw()


async def hurt(cluster: Cluster, copiers: Copiers, points: FaultPoints, seed: int) -> None:
    """Each moment once, with another blow for each; three seeds have every pair."""
    rng = cluster.loop.random
    moments = list(enumerate(Moment))
    rng.shuffle(moments)
    for number, moment in moments:
        blow = BLOWS[(number + seed) % len(BLOWS)]
        await asyncio.sleep(rng.uniform(0.2, 1.0))
        await inject("zombie", partial(haunt, cluster, copiers))
        name = f"{blow.name} {moment.name}"
        await inject(name, partial(strike, cluster, copiers, points, moment, blow))
        await inject("zombie", partial(haunt, cluster, copiers))


def final_log(data: bytes) -> FinalLog:
    """What a log amounts to, by its markers alone."""
    waiting: dict[int, list[Row]] = defaultdict(list)
    committed: list[Row] = []
    everything: list[Row] = []
    end = 0
    for position, _ in batch.iterate(data):
        producer_id = batch.producer_id(data, position)
        for record in batch.records(data, position):
            end = record.offset + 1
            if batch.is_control(data, position):
                rows = waiting.pop(producer_id, [])
                if parse_marker(record.key) is Marker.COMMIT:
                    committed += rows
                continue
            row = row_of(record.offset, bytes(record.value or b""))
            everything.append(row)
            is_open = batch.is_transactional(data, position)
            (waiting[producer_id] if is_open else committed).append(row)
    stable = min((rows[0].offset for rows in waiting.values()), default=end)
    return FinalLog(committed=sorted(committed), everything=everything, last_stable=stable, end=end)


def final_logs(cluster: Cluster) -> dict[Partition, FinalLog]:
    """Of each partition, whose replicas are alike."""
    logs = {}
    for topic, index in ALL:
        copies = {contents(machine, topic, index) for machine in cluster.machines.values()}
        assert len(copies) == 1, "the replicas differ"
        logs[topic, index] = final_log(*copies)
    return logs


async def offset_of(onlooker: Onlooker, source: Partition) -> int | None:
    return await onlooker.stable_offset(source)


async def read_to_its_end(onlooker: Onlooker, partition: Partition, log: FinalLog) -> bool | None:
    return True if await onlooker.read(partition) == log.end else None


async def judged(cluster: Cluster, copiers: Copiers, onlooker: Onlooker) -> History:
    """All that happened, once everything is at rest; raises what is wrong with it."""
    for source in SOURCES:
        last = TransactionalClient(cluster, id_of(source), Lookups(cluster))
        await eventually(partial(begun, last))  # aborts what was open
    await eventually(partial(settled, cluster, ALL), SETTLED_S)
    logs = final_logs(cluster)
    for partition in TARGETS:
        await eventually(partial(read_to_its_end, onlooker, partition, logs[partition]))
    offsets: Mapping[Partition, int] = {
        source: await eventually(partial(offset_of, onlooker, source)) for source in SOURCES
    }
    history = History(
        transactions=copiers.transactions,
        readings=onlooker.readings,
        offset_readings=onlooker.offset_readings,
        logs=logs,
        offsets=dict(offsets),
    )
    anomalies = check(history)
    assert not anomalies, "\n".join(map(str, anomalies[:5]))
    return history


async def scenario(cluster: Cluster, points: FaultPoints, seed: int) -> History:
    await cluster.start()
    await created(cluster, (FIRST, WIDTH), (MIDDLE, WIDTH), (LAST, WIDTH))
    for index in range(WIDTH):
        await eventually(partial(preloaded, cluster, index))
    onlooker = Onlooker(cluster)
    async with asyncio.TaskGroup() as tasks:
        copiers = Copiers(cluster, tasks)
        copiers.start()
        looking = tasks.create_task(onlooker.run())
        await hurt(cluster, copiers, points, seed)
        await asyncio.sleep(cluster.loop.random.uniform(0.0, 1.0))
        copiers.stop()
        looking.cancel()
    history = await judged(cluster, copiers, onlooker)
    await cluster.stop()
    return history


def simulate(seed: int) -> History:
    """One history: three blows at three moments, and zombies."""
    with simulated_cluster(seed, **COPIED) as (runner, cluster):
        points = FaultPoints(cluster)
        with watched(points):
            history = runner.run(scenario(cluster, points, seed))
    outcomes = Counter(one.outcome for one in history.transactions)
    assert outcomes[Outcome.COMMITTED] > 20, "little was tried"
    assert outcomes[Outcome.ABORTED] > 2, "little was tried"
    assert sum(len(one.rows) for one in history.readings) > 20, "little was seen"
    return history


@pytest.mark.parametrize("seed", seeds(SEEDS, range(4, 1000)))
def test_each_record_is_copied_once_and_committed_offsets_are_what_was_copied(seed: int) -> None:
    """Checks T3.1, T3.2 and T3.10, with offsets committed in the transactions."""
    simulate(seed)
