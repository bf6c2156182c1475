"""A replica that moved away while its node was down is found when the node returns, and no other.

Source: docs/decisions/0011. Three shipped nodes, seeded; the controller changes before the node is
back, so that nobody remembers what it should delete. No copy is deleted for that ZooKeeper says so:
it may have been set back, and the copy may be the last one.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.partition_directory import is_stray_name
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_partition_reassignments as moves
from barnabas.protocol.messages import create_topics, delete_topics
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, Machine, eventually, simulated_cluster
from tests.sim.test_controlled_shutdown import acknowledged, is_ruling
from tests.sim.znode_tree import Znode

MOVED, KEPT = "moved", "kept"
DATA = Path("/data")


async def ordered(cluster: Cluster, request: Any, version: int) -> None:
    """Have the controller do something, whoever that is by then."""

    async def ask() -> bool | None:
        for machine in cluster.up():
            if is_ruling(machine):  # also asked: one that is cut off, which answers nobody
                answer = await cluster.ask(machine.id, request, version)
                if answer is not None and not getattr(answer, "error_code", ErrorCode.NONE):
                    return True
        return None

    await eventually(ask)


async def created(cluster: Cluster) -> bool | None:
    wanted = [
        create_topics.Topic(name=name, num_partitions=1, replication_factor=3)
        for name in (MOVED, KEPT)
    ]
    request = create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=5000)
    for node in NODES:
        answer = await cluster.ask(node, request, 5)
        done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        if answer is not None and all(topic.error_code in done for topic in answer.topics):
            return True
    return None


async def in_sync(cluster: Cluster, topic: str, nodes: set[int]) -> bool | None:
    path = znodes.partition_state_path(topic, 0)
    if path not in cluster.ensemble.tree.nodes:
        return None
    data, _ = cluster.ensemble.tree.get(path, None)
    return set(znodes.PartitionState.from_json(data).isr) == nodes or None


async def write_some(cluster: Cluster, topic: str) -> None:
    async def leader() -> Any:
        for machine in cluster.up():
            found = machine.partition(topic)
            if found is not None and found.is_leader:
                return found
        return None

    await acknowledged(await eventually(leader))


def kept_by(machine: Machine, topic: str) -> list[str]:
    """The directories of a topic that are not on their way out."""
    names = machine.disk.list_directory(DATA)
    return [name for name in names if name.startswith(topic) and not name.endswith("-delete")]


async def moved_away(
    cluster: Cluster, *, is_down: bool = True, may_lose_power: bool = True
) -> Machine:
    """A node that is down, or cut off, whose replica of one topic is elsewhere by now."""
    await cluster.start()
    await eventually(lambda: created(cluster))
    for topic in (MOVED, KEPT):
        await eventually(lambda topic=topic: in_sync(cluster, topic, set(NODES)))  # type: ignore[misc]
        await write_some(cluster, topic)
    away = cluster.machines[cluster.loop.random.choice(NODES)]
    if is_down:
        await away.kill(with_power_cut=may_lose_power and cluster.loop.random.random() < 0.5)
    else:
        away.isolate()
    others = [node for node in NODES if node != away.id]
    await eventually(lambda: in_sync(cluster, MOVED, set(others)))
    await move(cluster, others)
    return away


async def move(cluster: Cluster, target: list[int]) -> None:
    wish = moves.Partition(partition_index=0, replicas=target)
    request = moves.AlterPartitionReassignmentsRequest(
        topics=[moves.Topic(name=MOVED, partitions=[wish])]
    )
    await ordered(cluster, request, 0)
    await eventually(lambda: is_assigned(cluster, target))


async def is_assigned(cluster: Cluster, nodes: list[int]) -> bool | None:
    data, _ = cluster.ensemble.tree.get(znodes.topic_path(MOVED), None)
    record = znodes.TopicAssignment.from_json(data)
    return (list(record.partitions[0]) == nodes and not record.removing) or None


async def controller(cluster: Cluster, away: Machine) -> Machine | None:
    """The one that rules among the others; the one that is cut off may believe that it does."""
    return next((one for one in cluster.up() if one is not away and is_ruling(one)), None)


async def with_another_controller(cluster: Cluster, away: Machine) -> None:
    ruling = await eventually(lambda: controller(cluster, away))
    await ruling.stop()
    await ruling.start()

    await eventually(lambda: controller(cluster, away))


async def moved(cluster: Cluster, *, is_down: bool = True) -> None:
    away = await moved_away(cluster, is_down=is_down)
    assert kept_by(away, MOVED)
    await with_another_controller(cluster, away)
    if is_down:
        await away.start()
    else:
        assert away.partition(MOVED) is not None, "it does not know"
        away.rejoin()

    await eventually(lambda: aside(away))
    await eventually(lambda: in_sync(cluster, KEPT, set(NODES)))
    for machine in cluster.machines.values():
        assert kept_by(machine, KEPT) == [f"{KEPT}-0"]
        assert machine is away or kept_by(machine, MOVED) == [f"{MOVED}-0"]
    await cluster.stop()


async def aside(machine: Machine) -> str | None:
    """What is left of the moved replica on a node, once that is set aside."""
    [name] = kept_by(machine, MOVED)
    return name if is_stray_name(name) else None


def has_records(machine: Machine, name: str) -> bool:
    files = machine.disk.list_directory(DATA / name)
    logs = [file for file in files if file.endswith(".log")]
    return sum(machine.disk.size(DATA / name / log) for log in logs) > 0


async def last_copy(cluster: Cluster, *, is_forgotten: bool) -> None:
    """The only new replica dies before the node with the old one is back."""
    away = await moved_away(cluster, may_lose_power=False)
    if is_forgotten:
        await with_another_controller(cluster, away)
    ruling = await eventually(lambda: controller(cluster, away))
    [new] = [one for one in cluster.up() if one is not ruling]
    await move(cluster, [new.id])
    await new.kill(with_power_cut=True)
    await eventually(lambda: controller(cluster, new))
    await eventually(lambda: is_unled(cluster))
    await away.start()
    name = await eventually(lambda: aside(away))
    await eventually(lambda: in_sync(cluster, KEPT, {away.id, ruling.id}))
    assert kept_by(away, MOVED) == [name]
    assert has_records(away, name)
    await cluster.stop()


async def is_unled(cluster: Cluster) -> bool | None:
    data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(MOVED, 0), None)
    return znodes.PartitionState.from_json(data).leader == -1 or None


async def set_back(cluster: Cluster) -> None:
    """ZooKeeper is restored as it was before a replica moved, and put right after that."""
    tree = cluster.ensemble.tree
    await cluster.start()
    await eventually(lambda: created(cluster))
    await move(cluster, [1])
    before = copy.deepcopy(tree.nodes)
    await move(cluster, [2])
    for _ in range(3):
        await write_some(cluster, MOVED)
    new = cluster.machines[2]
    led = new.partition(MOVED)
    assert led is not None
    end = led.log.end_offset
    assert end > 0
    after = copy.deepcopy(tree.nodes)
    await restarted(cluster, before)
    name = await eventually(lambda: aside(new))
    assert has_records(new, name)
    await restarted(cluster, after)

    async def leads() -> bool | None:
        found = new.partition(MOVED)
        return (found is not None and found.is_leader) or None

    await eventually(leads)
    led = new.partition(MOVED)
    assert led is not None
    assert (led.log.end_offset, led.high_watermark) == (end, end)
    assert kept_by(new, MOVED) == [f"{MOVED}-0"]
    await write_some(cluster, MOVED)
    await cluster.stop()


async def restarted(cluster: Cluster, znodes_then: dict[str, Znode]) -> None:
    """All nodes stop; ZooKeeper is as it was then, without what sessions held; all start."""
    for machine in cluster.up():
        await machine.stop()
    tree = cluster.ensemble.tree
    tree.nodes = copy.deepcopy(znodes_then)
    for owner in {node.owner for node in tree.nodes.values()} - {0}:
        tree.end_session(owner)
    await cluster.start()


async def gone(cluster: Cluster) -> None:
    away = await moved_away(cluster)
    request = delete_topics.DeleteTopicsRequest(topic_names=[MOVED], timeout_ms=5000)
    await ordered(cluster, request, 5)

    async def is_deleted() -> bool | None:
        return znodes.topic_path(MOVED) not in cluster.ensemble.tree.nodes or None

    await eventually(is_deleted)
    await with_another_controller(cluster, away)
    await away.start()

    name = await eventually(lambda: aside(away))
    await eventually(lambda: in_sync(cluster, KEPT, set(NODES)))
    await away.stop()
    await away.start()
    assert kept_by(away, MOVED) == [name], "what was set aside stays"
    await eventually(lambda: in_sync(cluster, KEPT, set(NODES)))
    await cluster.stop()


async def back(cluster: Cluster) -> None:
    """It is moved back as the node returns: the stray may be found before that or after."""
    away = await moved_away(cluster)
    wish = moves.Partition(partition_index=0, replicas=list(NODES))
    await with_another_controller(cluster, away)
    await away.start()
    request = moves.AlterPartitionReassignmentsRequest(
        topics=[moves.Topic(name=MOVED, partitions=[wish])]
    )
    await ordered(cluster, request, 0)
    await eventually(lambda: in_sync(cluster, MOVED, set(NODES)))
    await write_some(cluster, MOVED)
    assert f"{MOVED}-0" in kept_by(away, MOVED), "what was set aside may lie beside it"
    await cluster.stop()


def simulate(seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    with simulated_cluster(seed) as (runner, cluster):
        runner.run(scenario(cluster))


SEEDS = seeds(range(1, 4), range(4, 100))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_that_moved_away_from_a_node_that_was_down_is_set_aside_when_it_returns(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        simulate(seed, moved)
    told = [record.getMessage() for record in caplog.records if "stray" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("set a stray replica aside path=/data/moved-0 bytes=")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_that_moved_away_from_a_node_that_was_cut_off_is_set_aside_when_it_is_back(
    seed: int,
) -> None:
    simulate(seed, partial(moved, is_down=False))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_zookeeper_set_back_costs_no_replica(seed: int) -> None:
    simulate(seed, set_back)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_forgotten", [True, False])
def test_the_last_copy_of_a_partition_that_nobody_leads_is_kept(
    seed: int, is_forgotten: bool
) -> None:
    simulate(seed, partial(last_copy, is_forgotten=is_forgotten))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stray_replica_of_a_topic_that_is_gone_is_set_aside_and_kept(seed: int) -> None:
    simulate(seed, gone)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_given_its_former_replica_again_serves_it(seed: int) -> None:
    simulate(seed, back)
