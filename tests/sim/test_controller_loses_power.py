"""The controller loses power and is back before anybody noticed: what it led, others have whole.

A node that restarts removes its former registration at once (docs/decisions/0004), so no controller
saw it go, and it may be elected controller again. Source: docs/spec/cluster.md §6, pitfall 26.
"""

from __future__ import annotations

import json
from functools import partial

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records import batch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, eventually, simulated_cluster
from tests.sim.test_transactions import PARTITIONS, TOPIC, contents, created, settled

RECORDS = 40


def ruler_of(cluster: Cluster) -> int:
    data, _ = cluster.ensemble.tree.get(znodes.CONTROLLER, None)
    return int(json.loads(data)["brokerid"])


async def led_by(cluster: Cluster, node: int) -> int | None:
    """A partition that this node leads, with all others in sync."""
    for _, index in PARTITIONS:
        data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(TOPIC, index), None)
        state = znodes.PartitionState.from_json(data)
        replica = cluster.machines[node].partition(TOPIC, index)
        is_led = state.leader == node and replica is not None and replica.is_leader
        if is_led and len(state.isr) == len(NODES):
            return index
    return None


async def acknowledged(cluster: Cluster, node: int, index: int) -> list[bytes]:
    """Records that all replicas have, and no disk for sure."""
    values = [b"record %d" % number for number in range(RECORDS)]
    for value in values:
        data = bytes(batch.build_batch([(None, value)], timestamp_ms=cluster.loop.wall_ms()))
        one = produce.Partition(index=index, records=data)
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[produce.Topic(name=TOPIC, partition_data=[one])],
        )
        answer = await cluster.ask(node, request, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return values


async def scenario(cluster: Cluster) -> None:
    await cluster.start()
    await created(cluster)
    ruler = ruler_of(cluster)
    index = await eventually(partial(led_by, cluster, ruler))
    values = await acknowledged(cluster, ruler, index)
    await cluster.machines[ruler].kill(with_power_cut=True)
    await cluster.machines[ruler].start()
    assert ruler_of(cluster) == ruler, "others had the time to notice"
    await eventually(partial(settled, cluster))
    for machine in cluster.machines.values():
        data = contents(machine, TOPIC, index)
        found = [
            bytes(record.value or b"")
            for position, _ in batch.iterate(data)
            for record in batch.records(data, position)
        ]
        assert found == values
    await cluster.stop()


@pytest.mark.parametrize("seed", seeds(range(1, 4), range(4, 200)))
def test_a_controller_back_from_a_power_cut_does_not_lead_on_with_a_shorter_log(seed: int) -> None:
    with simulated_cluster(seed) as (runner, cluster):
        runner.run(scenario(cluster))
