"""A producer that asks the wrong node, or whose leader loses its place, is told the right one."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.handlers.leader_hints import LeaderHints
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.messages import produce as messages
from tests.handlers.coordinators import judging
from tests.handlers.peer import answered, call, over_the_wire
from tests.handlers.test_fetch_topic_ids import tell
from tests.replication.logs import NOW_MS, a_batch, follow, lead

HINT = messages.CurrentLeader(leader_id=2, leader_epoch=3)
NODE = messages.NodeEndpoint(node_id=2, host="node2", port=9002, rack="r")


@pytest.fixture
async def handler(replicas: ReplicaManager) -> ProduceHandler:
    cache = MetadataCache()
    tell(cache, ("t", b"t" * 16, 2))
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
        leaders=LeaderHints(cache, replicas),
    )


def request(*topics: str, acks: int = 1) -> messages.ProduceRequest:
    batch = bytes(a_batch())
    return messages.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=60_000,
        topic_data=[
            messages.Topic(name=topic, partition_data=[messages.Partition(index=0, records=batch)])
            for topic in topics
        ],
    )


@pytest.mark.parametrize("version", [3, 9, 10, 11])
async def test_the_leader_is_told_along_with_the_code(
    handler: ProduceHandler, replicas: ReplicaManager, version: int
) -> None:
    follow(replicas, "t", epoch=3)
    lead(replicas, "own")
    told = answered(handler.produce(call(request("t", "own", "nowhere"), version)))
    answer = over_the_wire(told, version)
    found = {topic.name: topic.partition_responses[0] for topic in answer.responses}
    assert {name: one.error_code for name, one in found.items()} == {"t": 6, "own": 0, "nowhere": 3}
    hints = [found[name].current_leader for name in ("t", "own", "nowhere")]
    assert hints == [HINT if version >= 10 else None, None, None]
    assert list(answer.node_endpoints) == ([NODE] if version >= 10 else [])


async def test_a_leader_that_loses_its_place_names_the_next_one(
    handler: ProduceHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    pending = handler.produce(call(request("t", acks=-1), 11))
    assert isinstance(pending, PendingResponse)
    assert not pending.is_resolved
    follow(replicas, "t", epoch=3)
    answer = over_the_wire(answered(pending), 11)
    [told] = answer.responses[0].partition_responses
    assert (told.error_code, told.current_leader) == (6, HINT)
    assert list(answer.node_endpoints) == [NODE]
