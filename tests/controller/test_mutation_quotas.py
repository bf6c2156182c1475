"""Changes of the cluster are bounded by partitions, docs/spec/security.md §4 (S63); KIP-599."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.controller.create_partitions import PartitionCreator
from barnabas.broker.handlers.create_partitions import CreatePartitionsHandler
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.handlers.topics import TopicsHandler
from barnabas.broker.quota.controller_mutation import EXCEEDED, ControllerMutationQuotas
from barnabas.broker.quota.entities import DEFAULT, ClientEntity
from barnabas.broker.quota.quota_table import QuotaTable
from barnabas.broker.quota.rate import Windows
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
)
from tests.controller.small_cluster import SmallCluster, SmallNode
from tests.handlers.peer import SomePeer, answered, call, over_the_wire

EXCEEDS = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Bounded:
    """The controller of one node, whose clients may change two partitions a second."""

    def __init__(self, cluster: SmallCluster, node: SmallNode) -> None:
        self.now = 100.0
        table = QuotaTable()
        table.set(ClientEntity(None, DEFAULT), 2.0)
        self.mutations = ControllerMutationQuotas(table, Windows(11, 1.0), lambda: self.now)
        self.peer = SomePeer()
        self._cluster = cluster
        self._node = node

    async def create(self, version: int = 7, *, is_dry: bool = False, **topics: int) -> Any:
        request = create_topics.CreateTopicsRequest(
            topics=[
                create_topics.Topic(name=name, num_partitions=count, replication_factor=1)
                for name, count in topics.items()
            ],
            timeout_ms=60_000,
            validate_only=is_dry,
        )
        answer = await self._topics().create(call(request, version, peer=self.peer))
        return over_the_wire(answer, version)

    async def delete(self, *names: str, version: int = 5) -> Any:
        request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
        answer = await self._topics().delete(call(request, version, peer=self.peer))
        return over_the_wire(answer, version)

    async def grow(self, version: int = 3, *, is_dry: bool = False, **counts: int) -> Any:
        handler = CreatePartitionsHandler(
            PartitionCreator(self._cluster.observer),
            self._node.cache,
            is_controller=lambda: True,
            heard=self._node.controller.heard,
            mutations=self.mutations,
        )
        request = create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.Topic(name=name, count=count, assignments=None)
                for name, count in counts.items()
            ],
            timeout_ms=60_000,
            validate_only=is_dry,
        )
        answer = await handler.create(call(request, version, peer=self.peer))
        return over_the_wire(answer, version)

    def _topics(self) -> TopicsHandler:
        return TopicsHandler(
            self._cluster.writer(),
            self._node.cache,
            is_controller=lambda: True,
            heard=self._node.controller.heard,
            may_delete=True,
            mutations=self.mutations,
        )


@pytest.fixture
async def bounded(cluster: SmallCluster) -> Bounded:
    node = await cluster.start(1)
    await cluster.elected()
    return Bounded(cluster, node)


async def test_s63_thirty_partitions_pass_and_the_next_topic_waits_four_seconds(
    bounded: Bounded,
) -> None:
    answer = await bounded.create(a=30, b=1)
    assert [(each.name, each.error_code) for each in answer.topics] == [("a", 0), ("b", EXCEEDS)]
    assert answer.topics[1].error_message == EXCEEDED
    assert answer.throttle_time_ms == 4000
    assert bounded.peer.throttled_s == 4
    bounded.now += 4
    answer = await bounded.create(b=1)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)


async def test_s63_before_version_6_all_is_created_and_throttled(bounded: Bounded) -> None:
    answer = await bounded.create(5, a=30, b=2)
    assert [each.error_code for each in answer.topics] == [0, 0]
    assert answer.throttle_time_ms == 5000
    assert bounded.peer.throttled_s == 5


async def test_s63_what_is_refused_or_only_validated_costs_nothing(bounded: Bounded) -> None:
    await bounded.create(is_dry=True, a=30)
    answer = await bounded.create(a=22)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
    answer = await bounded.create(a=22)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    answer = await bounded.create(b=1)
    assert answer.topics[0].error_code == 0


async def test_s63_deleted_partitions_count(bounded: Bounded) -> None:
    await bounded.create(a=20, b=1)
    bounded.now += 11
    answer = await bounded.delete("a", "b")
    assert [each.error_code for each in answer.responses] == [0, 0]
    await bounded.create(c=1, d=9)
    answer = await bounded.delete("c")
    assert answer.responses[0].error_code == EXCEEDS
    assert answer.throttle_time_ms == 4500
    answer = await bounded.delete("c", version=4)
    assert answer.responses[0].error_code == 0
    assert answer.throttle_time_ms == 5000


async def test_s63_only_added_partitions_count(bounded: Bounded) -> None:
    await bounded.create(a=20, b=1)
    bounded.now += 11
    await bounded.grow(is_dry=True, a=100)
    answer = await bounded.grow(a=44, b=2)
    assert {each.name: each.error_code for each in answer.results} == {"a": 0, "b": EXCEEDS}
    assert answer.throttle_time_ms == 1000
    answer = await bounded.grow(2, b=3)
    assert answer.results[0].error_code == 0
    assert answer.throttle_time_ms == 2000


async def test_s63_a_topic_that_a_client_asks_about_counts_once_and_throttles(
    bounded: Bounded, cluster: SmallCluster
) -> None:
    node = cluster.nodes[1]
    queued: set[str] = set()

    def create(name: str) -> bool:
        is_new = name not in queued
        queued.add(name)
        return is_new

    handler = MetadataHandler(
        node.cache, "c", create=create, mutations=bounded.mutations, partitions=15
    )

    def ask(*names: str) -> int:
        request = metadata.MetadataRequest(topics=[metadata.Topic(name=name) for name in names])
        answer = over_the_wire(answered(handler.answer(call(request, 9, peer=bounded.peer))), 9)
        return int(answer.throttle_time_ms)

    assert ask("a") == 0
    assert ask("a") == 0
    assert ask("a", "b") == 4000
    assert bounded.peer.throttled_s == 4
