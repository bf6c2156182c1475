"""What who may not see a topic is told of a consumer group. Source: docs/spec/security.md §3;
docs/spec/consumer-groups.md §1.2, C10, and §3.1, C41.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from barnabas.protocol.acl import AclBinding, Operation, ResourceType
from barnabas.protocol.messages import consumer_group_describe, consumer_group_heartbeat
from tests.authorizer.guarded_node import ALICE, ROOT, GuardedNode, allow, guarded_node
from tests.handlers.peer import SomePeer

TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP
ALICES_GROUP = [allow(GROUP, "g", Operation.ALL)]


def join(**fields: Any) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=fields.pop("member_id", "m"),
        member_epoch=fields.pop("member_epoch", 0),
        rebalance_timeout_ms=1000,
        topic_partitions=[],
        **fields,
    )


DESCRIBE = consumer_group_describe.ConsumerGroupDescribeRequest(
    group_ids=["g"], include_authorized_operations=True
)


async def ask(node: GuardedNode, request: Any, principal: str = ALICE) -> Any:
    return await node.ask(request, 1, SomePeer(principal=principal, host="127.0.0.1"))


async def joined(node: GuardedNode, **fields: Any) -> Any:
    """The answer, once the node knows what it leads."""
    async with asyncio.timeout(60):
        while True:
            answer = await ask(node, join(**fields), ROOT)
            if answer.error_code not in (14, 15, 16):
                return answer
            await asyncio.sleep(0.05)


def held(entries: Sequence[AclBinding]) -> list[AclBinding]:
    return [*ALICES_GROUP, *entries]


def test_a_group_with_a_hidden_topic_shows_no_member() -> None:
    with guarded_node() as (runner, node):

        async def tell() -> None:
            assert (await joined(node, subscribed_topic_names=["t"])).error_code == 0
            node.entries(held([allow(TOPIC, "t", Operation.DESCRIBE)]))
            (shown,) = (await ask(node, DESCRIBE)).groups
            assert (shown.error_code, len(shown.members)) == (0, 1)
            assert shown.authorized_operations > 0
            node.entries(held([]))
            (hidden,) = (await ask(node, DESCRIBE)).groups
            assert (hidden.error_code, list(hidden.members)) == (29, [])

        runner.run(tell())
