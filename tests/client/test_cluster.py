"""Requests find the broker that serves them, also when it moves, loads or goes away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster, TopicPartition, Unreachable, parse_addresses
from barnabas.client.errors import KafkaError, UnsupportedVersion
from barnabas.console.development.ports import free_ports
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_topics,
    end_txn,
    find_coordinator,
    heartbeat,
    list_offsets,
    metadata,
    offset_fetch,
)

from .scripted_broker import Answer, ScriptedBroker, scripted_broker

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1, api_timeout_ms=5_000)
TOPIC = TopicPartition("t", 0)


def _by(answer: Callable[[int], Any], number: int) -> Answer:
    return lambda request, version: answer(number)


class ScriptedBrokers:
    """Three scripted brokers that agree on who is what; a test moves the roles about."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = dict(enumerate(brokers, start=1))
        self.controller = 1
        self.coordinator = 1
        self.transaction_coordinator = 1
        self.leader = 1
        self.coordinator_codes: list[int] = []
        for number, broker in self.brokers.items():
            broker.answers = {
                ApiKey.METADATA: self.metadata,
                ApiKey.FIND_COORDINATOR: self.find,
                ApiKey.HEARTBEAT: _by(self.beat, number),
                ApiKey.END_TXN: _by(self.end_transaction, number),
                ApiKey.LIST_OFFSETS: _by(self.end, number),
                ApiKey.OFFSET_FETCH: self.committed,
                ApiKey.DELETE_TOPICS: _by(self.gone, number),
            }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def calls(self, number: int, key: ApiKey) -> int:
        return sum(header.key == key for header, _ in self.brokers[number].seen)

    def metadata(self, request: Any, version: int) -> metadata.MetadataResponse:
        part = metadata.Partition(
            partition_index=0, leader_id=self.leader, replica_nodes=[1], isr_nodes=[1]
        )
        known = metadata.TopicResult(name="t", partitions=[part])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = ["t"] if request.topics is None else [topic.name for topic in request.topics]
        return metadata.MetadataResponse(
            brokers=[
                metadata.Broker(node_id=number, host="127.0.0.1", port=broker.port)
                for number, broker in self.brokers.items()
            ],
            controller_id=self.controller,
            topics=[
                known if name == "t" else metadata.TopicResult(name=name, error_code=unknown)
                for name in asked
            ],
        )

    def find(self, request: Any, version: int) -> find_coordinator.FindCoordinatorResponse:
        number = self.transaction_coordinator if request.key_type else self.coordinator
        port = self.brokers[number].port
        return find_coordinator.FindCoordinatorResponse(node_id=number, host="127.0.0.1", port=port)

    def beat(self, number: int) -> heartbeat.HeartbeatResponse:
        if number != self.coordinator:
            return heartbeat.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        code = self.coordinator_codes.pop(0) if self.coordinator_codes else 0
        return heartbeat.HeartbeatResponse(error_code=code)

    def end_transaction(self, number: int) -> end_txn.EndTxnResponse:
        is_right = number == self.transaction_coordinator
        return end_txn.EndTxnResponse(error_code=0 if is_right else ErrorCode.NOT_COORDINATOR)

    def end(self, number: int) -> list_offsets.ListOffsetsResponse:
        code = 0 if number == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        part = list_offsets.PartitionResult(partition_index=0, error_code=code, offset=42)
        topic = list_offsets.TopicResult(name="t", partitions=[part])
        return list_offsets.ListOffsetsResponse(topics=[topic])

    def committed(self, request: Any, version: int) -> offset_fetch.OffsetFetchResponse:
        parts = [
            offset_fetch.PartitionResult(partition_index=0, committed_offset=40, metadata=""),
            offset_fetch.PartitionResult(partition_index=1, committed_offset=-1, metadata=""),
        ]
        topic = offset_fetch.TopicResult(name="t", partitions=parts)
        return offset_fetch.OffsetFetchResponse(topics=[topic])

    def gone(self, number: int) -> delete_topics.DeleteTopicsResponse:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if number != self.controller:
            code = ErrorCode.NOT_CONTROLLER
        result = delete_topics.TopicResult(name="x", error_code=code)
        return delete_topics.DeleteTopicsResponse(responses=[result])


def _code(answer: Any) -> list[int]:
    return [answer.error_code]


@pytest.fixture
async def brokers() -> AsyncIterator[ScriptedBrokers]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(scripted_broker()) for _ in range(3)]
        yield ScriptedBrokers(brokers)


@pytest.fixture
async def cluster(brokers: ScriptedBrokers) -> AsyncIterator[Cluster]:
    async with Cluster(brokers.bootstrap, CONFIG) as cluster:
        yield cluster


async def test_a_request_goes_to_the_coordinator_of_the_group(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    brokers.coordinator = 3
    await cluster.to_coordinator("g", heartbeat.HeartbeatRequest(group_id="g"), _code)
    assert brokers.calls(3, ApiKey.HEARTBEAT) == 1


async def test_a_coordinator_is_looked_for_once(brokers: ScriptedBrokers, cluster: Cluster) -> None:
    for _ in range(5):
        await cluster.to_coordinator("g", heartbeat.HeartbeatRequest(group_id="g"), _code)
    assert sum(brokers.calls(number, ApiKey.FIND_COORDINATOR) for number in (1, 2, 3)) == 1


async def test_a_coordinator_that_moved_is_found_again(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    request = heartbeat.HeartbeatRequest(group_id="g")
    await cluster.to_coordinator("g", request, _code)
    brokers.coordinator = 2
    answer = await cluster.to_coordinator("g", request, _code)
    assert answer.error_code == 0
    assert brokers.calls(2, ApiKey.HEARTBEAT) == 1


async def test_a_transactional_id_has_a_coordinator_of_its_own_that_may_move(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    brokers.coordinator, brokers.transaction_coordinator = 2, 3
    await cluster.to_coordinator("same", heartbeat.HeartbeatRequest(group_id="same"), _code)
    request = end_txn.EndTxnRequest(transactional_id="same")
    for number in (3, 1):
        brokers.transaction_coordinator = number
        answer = await cluster.to_transaction_coordinator("same", request, _code)
        assert answer.error_code == 0
    assert brokers.calls(2, ApiKey.HEARTBEAT) == 1
    assert [brokers.calls(number, ApiKey.END_TXN) for number in (1, 2, 3)] == [1, 0, 2]


async def test_a_broker_that_knows_no_transactions_is_not_asked_for_a_group_of_that_name(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    for broker in brokers.brokers.values():
        broker.ranges[ApiKey.FIND_COORDINATOR] = (0, 0)
    with pytest.raises(UnsupportedVersion):
        await cluster.to_transaction_coordinator("x", end_txn.EndTxnRequest(), _code)
    assert not any(brokers.calls(number, ApiKey.FIND_COORDINATOR) for number in (1, 2, 3))


async def test_a_loading_coordinator_is_asked_again_and_not_looked_for(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    brokers.coordinator_codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    request = heartbeat.HeartbeatRequest(group_id="g")
    answer = await cluster.to_coordinator("g", request, _code)
    assert answer.error_code == 0
    assert brokers.calls(1, ApiKey.HEARTBEAT) == 4
    assert sum(brokers.calls(number, ApiKey.FIND_COORDINATOR) for number in (1, 2, 3)) == 1


async def test_an_answer_that_no_retry_mends_comes_back_as_it_is(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    brokers.coordinator_codes = [ErrorCode.ILLEGAL_GENERATION]
    request = heartbeat.HeartbeatRequest(group_id="g")
    answer = await cluster.to_coordinator("g", request, _code)
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
    assert brokers.calls(1, ApiKey.HEARTBEAT) == 1


async def test_what_never_mends_is_raised_when_the_time_is_over(brokers: ScriptedBrokers) -> None:
    brokers.coordinator_codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
    config = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1, api_timeout_ms=1_500)
    async with Cluster(brokers.bootstrap, config) as cluster:
        with pytest.raises(KafkaError) as failure:
            await cluster.to_coordinator("g", heartbeat.HeartbeatRequest(), _code)
    assert failure.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_broken_connection_is_opened_again(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    request = heartbeat.HeartbeatRequest(group_id="g")
    await cluster.to_coordinator("g", request, _code)
    for writer in brokers.brokers[1].writers:
        writer.close()
    answer = await cluster.to_coordinator("g", request, _code)
    assert answer.error_code == 0


async def test_the_first_address_may_be_dead(brokers: ScriptedBrokers) -> None:
    (port,) = free_ports(1)
    async with Cluster(f"127.0.0.1:{port},{brokers.bootstrap}", CONFIG) as cluster:
        assert [node.id for node in await cluster.nodes()] == [1, 2, 3]


async def test_a_first_contact_that_fails_everywhere_is_reported_at_once() -> None:
    first, second = free_ports(2)
    async with Cluster(f"127.0.0.1:{first},127.0.0.1:{second}") as cluster:
        with pytest.raises(Unreachable, match=f"{first}.*; .*{second}"):
            await cluster.metadata()


async def test_a_broker_the_cluster_does_not_have_cannot_be_asked(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as failure:
        await cluster.to_node(9, heartbeat.HeartbeatRequest())
    assert failure.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_leaders_are_asked_again_after_a_move(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    admin = Admin(cluster)
    assert await admin.end_offsets([TOPIC]) == {TOPIC: 42}
    brokers.leader = 3
    assert await admin.end_offsets([TOPIC]) == {TOPIC: 42}
    assert brokers.calls(3, ApiKey.LIST_OFFSETS) == 1


async def test_a_partition_of_a_deleted_topic_has_no_end_offset(cluster: Cluster) -> None:
    gone = TopicPartition("deleted", 0)
    assert await Admin(cluster).end_offsets([gone, TOPIC]) == {TOPIC: 42}


async def test_a_partition_without_a_leader_has_no_end_offset(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    brokers.leader = -1
    assert await Admin(cluster).end_offsets([TOPIC]) == {}


async def test_a_partition_never_committed_is_not_among_the_offsets(cluster: Cluster) -> None:
    committed = await Admin(cluster).committed_offsets("g")
    assert {topic_partition: offset.offset for topic_partition, offset in committed.items()} == {
        TOPIC: 40
    }


async def test_deleting_an_unknown_topic_fails_without_waiting(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    with pytest.raises(KafkaError) as failure:
        await Admin(cluster).delete_topics(["x"])
    assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.calls(1, ApiKey.DELETE_TOPICS) == 1


async def test_a_controller_that_moved_is_found_again(
    brokers: ScriptedBrokers, cluster: Cluster
) -> None:
    await cluster.nodes()
    brokers.controller = 2
    with pytest.raises(KafkaError):
        await Admin(cluster).delete_topics(["x"])
    assert brokers.calls(2, ApiKey.DELETE_TOPICS) == 1


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
    ],
)
def test_addresses_are_read_as_people_write_them(
    text: str | list[str], addresses: list[tuple[str, int]]
) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", "a", "a:", "a:b", "a:0", "a:65536", ","])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)
