"""DeleteTopics at a node that is not the controller."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_topics
from tests.controller.small_cluster import SmallCluster
from tests.controller.test_cluster_handlers import topics_handler
from tests.handlers.peer import call


async def test_another_node_than_the_controller_tells_nothing_of_a_topic_to_be_deleted(
    cluster: SmallCluster,
) -> None:
    """It told the name behind an id, and the id behind a name, to who may do nothing here."""
    await cluster.start(1)
    await cluster.elected()
    other = await cluster.start(2, ("broker",))
    await cluster.create("payroll", {0: (1,)})
    await cluster.until(lambda: "payroll" in other.cache.snapshot.topic_ids)
    topic_id = other.cache.snapshot.topic_ids["payroll"]
    asked = [
        delete_topics.Topic(name="payroll"),
        delete_topics.Topic(name=None, topic_id=topic_id),
        delete_topics.Topic(name="nothing"),
        delete_topics.Topic(name=None, topic_id=b"\1" * 16),
    ]
    deletion = delete_topics.DeleteTopicsRequest(topics=asked, timeout_ms=60_000)
    answer = await topics_handler(cluster, other).delete(call(deletion, 6))
    assert [(one.name, one.topic_id, one.error_code) for one in answer.responses] == [
        (one.name, one.topic_id, ErrorCode.NOT_CONTROLLER) for one in asked
    ]
