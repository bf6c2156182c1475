"""What nodes are told while one of Apache Kafka is among them.

Source: docs/spec/cluster.md §2.15.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.controller.context import ControllerContext, Leadership, LiveNode
from barnabas.broker.controller.control_requests import NO_TOPIC_ID, ControlRequestBuilder
from barnabas.broker.metadata.metadata_cache import WHOLE, MetadataCache
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.zookeeper import znodes

OURS, KAFKA = 1, 3
TOPIC, TOPIC_ID = "t", bytes(range(16))


def context(*, has_kafka_peer: bool) -> ControllerContext:
    nodes = [OURS, KAFKA] if has_kafka_peer else [OURS]
    found = ControllerContext(topic_ids={TOPIC: TOPIC_ID}, assignments={TOPIC: {0: tuple(nodes)}})
    for node in nodes:
        endpoints = {"INTERNAL": ("127.0.0.1", 9000 + node)}
        registration = znodes.BrokerRegistration(endpoints=endpoints, timestamp=0)
        found.nodes[node] = LiveNode(node, node, registration, is_kafka_peer=node == KAFKA)
    found.leaders[TOPIC, 0] = Leadership(OURS, 0, tuple(nodes), 1, 0, 1)
    return found


def orders(*, has_kafka_peer: bool) -> ControlRequestBuilder:
    return ControlRequestBuilder(context(has_kafka_peer=has_kafka_peer), OURS, 1, "INTERNAL")


def received(request: Any, version: int) -> Any:
    """The request as the other side reads it."""
    return decode(type(request), version, encode(request, version))


def told(made: ControlRequestBuilder, node: int, *, is_whole: bool = True) -> tuple[Any, int]:
    states = made.shared_metadata([(TOPIC, 0)])
    request, version = made.metadata_for(node, states, is_whole=is_whole)
    return received(request, version), version


@pytest.mark.parametrize("node", [OURS, KAFKA])
def test_while_a_node_of_kafka_is_there_nobody_is_told_a_topic_id(node: int) -> None:
    """A client would ask Kafka for it, which knows none."""
    request, _ = told(orders(has_kafka_peer=True), node)
    assert [state.topic_id for state in request.topic_states] == [NO_TOPIC_ID]


def test_kafka_is_told_in_the_versions_of_its_protocol() -> None:
    made = orders(has_kafka_peer=True)
    assert told(made, KAFKA)[1] == told(made, KAFKA, is_whole=False)[1] == 6
    for node in (OURS, KAFKA):
        request, version = made.leaders_for(node, {(TOPIC, 0): True})
        assert version == 4
        [state] = received(request, version).topic_states
        assert state.topic_name == TOPIC


def test_every_node_is_told_the_same_bytes_made_once() -> None:
    made = orders(has_kafka_peer=False)
    shared = made.shared_metadata([(TOPIC, 0)])
    first, version = made.metadata_for(OURS, shared)
    second, _ = made.metadata_for(OURS, shared)
    assert first.topic_states is second.topic_states
    assert first.live_brokers is second.live_brokers
    assert encode(first, version) == encode(received(first, version), version)
    assert [broker.id for broker in first.live_brokers] == [OURS]
    assert [state.topic_id for state in first.topic_states] == [TOPIC_ID]


def test_ours_still_forget_beside_kafka_what_is_told_no_more() -> None:
    """The answer to all that there is may be that a topic is gone."""
    cache = MetadataCache()
    cache.update(told(orders(has_kafka_peer=False), OURS)[0])
    assert cache.snapshot.topic_ids == {TOPIC: TOPIC_ID}
    mixed = orders(has_kafka_peer=True)
    request, version = mixed.metadata_for(OURS, mixed.shared_metadata([]), is_whole=True)
    assert received(request, version).type == WHOLE
    cache.update(received(request, version))
    assert not cache.snapshot.topics
    assert not cache.snapshot.topic_ids
