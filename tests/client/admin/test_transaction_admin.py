"""Administration of transactions: whom it asks, what it asks again, and what hangs.

Source: docs/spec/transactions.md §6; KIP-664.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError, UnsupportedVersion
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_transactions,
    metadata,
    write_txn_markers,
)
from tests.client.scripted_broker import Answer, ScriptedBroker, scripted_broker

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1, api_timeout_ms=5_000)
PART = TopicPartition("t", 0)
MINUTE = 60_000
NOW = 100 * MINUTE


class ScriptedTransactions:
    """Two nodes that coordinate and lead what a test says; node 1 does both at first."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = dict(enumerate(brokers, start=1))
        self.partitions = 1
        self.leader = self.coordinator = 1
        self.log_leader = 1
        """Of the one partition of the transaction log; -1 for none."""
        self.list_codes: dict[int, list[ErrorCode]] = {1: [], 2: []}
        self.codes: list[ErrorCode] = []
        """Of DescribeTransactions, in turn; then success."""
        self.ids: dict[str, describe_transactions.Transaction] = {}
        self.listed: dict[str, int] = {}
        """Producer ids as they are listed, where that is not as they are described."""
        self.producers: dict[int, list[describe_producers.Producer]] = {}
        self.marker_codes: list[ErrorCode] = []
        self.markers: list[write_txn_markers.Marker] = []
        self.loses_answers = False
        self.ends_first = False
        """The transaction has ended when a marker arrives."""
        for number, broker in self.brokers.items():
            broker.answers = {
                ApiKey.METADATA: self.metadata,
                ApiKey.FIND_COORDINATOR: self.find,
                ApiKey.LIST_TRANSACTIONS: _of(self.list, number),
                ApiKey.DESCRIBE_TRANSACTIONS: _of(self.describe, number),
                ApiKey.DESCRIBE_PRODUCERS: _of(self.describe_producers, number),
                ApiKey.WRITE_TXN_MARKERS: _of(self.mark, number),
            }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def seen(self, number: int, key: ApiKey) -> list[Any]:
        return [request for header, request in self.brokers[number].seen if header.key == key]

    def hold(self, name: str, producer_id: int, *partitions: int, state: str = "Ongoing") -> None:
        """Node ``coordinator`` has this id with a transaction in these partitions."""
        self.ids[name] = describe_transactions.Transaction(
            error_code=0,
            transactional_id=name,
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=NOW,
            producer_id=producer_id,
            producer_epoch=3,
            topics=[describe_transactions.Topic(topic="t", partitions=list(partitions))],
        )

    def open(self, producer_id: int, start: int, *, age_ms: int, partition: int = 0) -> None:
        """A transaction is open in a partition, last written to so long ago."""
        self.producers.setdefault(partition, []).append(
            describe_producers.Producer(
                producer_id=producer_id,
                producer_epoch=3,
                last_sequence=9,
                last_timestamp=NOW - age_ms,
                coordinator_epoch=-1,
                current_txn_start_offset=start,
            )
        )

    def metadata(self, request: Any, version: int) -> metadata.MetadataResponse:
        parts = [
            metadata.Partition(
                partition_index=index, leader_id=self.leader, replica_nodes=[1], isr_nodes=[1]
            )
            for index in range(self.partitions)
        ]
        return metadata.MetadataResponse(
            brokers=[
                metadata.Broker(node_id=number, host="127.0.0.1", port=broker.port)
                for number, broker in self.brokers.items()
            ],
            controller_id=1,
            topics=[_topic(topic.name, parts, self.log_leader) for topic in request.topics or ()],
        )

    def find(self, request: Any, version: int) -> find_coordinator.FindCoordinatorResponse:
        assert request.key_type == 1
        port = self.brokers[self.coordinator].port
        return find_coordinator.FindCoordinatorResponse(
            node_id=self.coordinator, host="127.0.0.1", port=port
        )

    def list(self, number: int, request: Any) -> list_transactions.ListTransactionsResponse:
        if self.list_codes[number]:
            return list_transactions.ListTransactionsResponse(
                error_code=self.list_codes[number].pop(0)
            )
        found = []
        for name, one in self.ids.items() if number == self.coordinator else ():
            producer_id = self.listed.get(name, one.producer_id)
            if not request.producer_id_filters or producer_id in request.producer_id_filters:
                found.append(
                    list_transactions.Transaction(
                        transactional_id=name,
                        producer_id=producer_id,
                        transaction_state=one.transaction_state,
                    )
                )
        return list_transactions.ListTransactionsResponse(transaction_states=found)

    def describe(
        self, number: int, request: Any
    ) -> describe_transactions.DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if number != self.coordinator:
            code = ErrorCode.NOT_COORDINATOR
        elif not code and name not in self.ids:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        state = describe_transactions.Transaction(error_code=code, transactional_id=name)
        return describe_transactions.DescribeTransactionsResponse(
            transaction_states=[state if code else self.ids[name]]
        )

    def describe_producers(
        self, number: int, request: Any
    ) -> describe_producers.DescribeProducersResponse:
        code = 0 if number == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return describe_producers.DescribeProducersResponse(
            topics=[
                describe_producers.TopicResult(
                    name=topic.name,
                    partitions=[
                        describe_producers.PartitionResult(
                            partition_index=index,
                            error_code=code,
                            active_producers=[] if code else self.producers.get(index, []),
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def mark(self, number: int, request: Any) -> write_txn_markers.WriteTxnMarkersResponse | None:
        (marker,) = request.markers
        code = self.marker_codes.pop(0) if self.marker_codes else ErrorCode.NONE
        if number != self.leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.ends_first:
            self.producers[0] = []
        if not code:
            self.markers.append(marker)
            self.producers[0] = []
        if self.loses_answers:
            for writer in self.brokers[number].writers:
                writer.close()
            return None
        result = write_txn_markers.PartitionResult(partition_index=0, error_code=code)
        topic = write_txn_markers.TopicResult(name="t", partitions=[result])
        return write_txn_markers.WriteTxnMarkersResponse(
            markers=[write_txn_markers.MarkerResult(producer_id=marker.producer_id, topics=[topic])]
        )


def _topic(name: str, parts: list[metadata.Partition], log_leader: int) -> metadata.TopicResult:
    if name == "__transaction_state":
        log = metadata.Partition(
            partition_index=0, leader_id=log_leader, replica_nodes=[1], isr_nodes=[1]
        )
        return metadata.TopicResult(name=name, partitions=[log])
    if name == "t":
        return metadata.TopicResult(name=name, partitions=parts)
    return metadata.TopicResult(name=name, error_code=3)


def _of(answer: Callable[[int, Any], Any], number: int) -> Answer:
    return lambda request, version: answer(number, request)


@pytest.fixture
async def nodes() -> AsyncIterator[ScriptedTransactions]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(scripted_broker()) for _ in range(2)]
        yield ScriptedTransactions(brokers)


@pytest.fixture
async def admin(nodes: ScriptedTransactions) -> AsyncIterator[Admin]:
    async with Admin.of(nodes.bootstrap, CONFIG) as admin:
        yield admin


async def hanging(admin: Admin, *partitions: TopicPartition) -> list[tuple[int, int]]:
    """Producer id and start offset of what hangs for more than 15 minutes."""
    found, failures = await admin.find_hanging(
        partitions or [PART], now_ms=NOW, open_longer_than_ms=15 * MINUTE
    )
    assert not failures
    return [(one.producer.producer_id, one.start_offset) for one in found]


async def test_every_node_is_asked_for_its_ids(nodes: ScriptedTransactions, admin: Admin) -> None:
    nodes.coordinator = 2
    nodes.hold("b", 8)
    nodes.hold("a", 7)
    found = await admin.list_transactions()
    assert [(one.transactional_id, one.coordinator) for one in found] == [("a", 2), ("b", 2)]
    assert len(nodes.seen(1, ApiKey.LIST_TRANSACTIONS)) == 1


async def test_a_node_that_loads_is_asked_again(nodes: ScriptedTransactions, admin: Admin) -> None:
    nodes.list_codes[2] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    await admin.list_transactions()
    assert len(nodes.seen(2, ApiKey.LIST_TRANSACTIONS)) == 4


async def test_a_node_that_has_not_started_fails_the_listing(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.list_codes[2] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(KafkaError) as failure:
        await admin.list_transactions()
    assert failure.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(nodes.seen(2, ApiKey.LIST_TRANSACTIONS)) == 1


async def test_a_node_without_the_filter_by_duration_is_not_believed(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.brokers[2].ranges = {ApiKey.LIST_TRANSACTIONS: (0, 0)}
    assert await admin.list_transactions() == []
    with pytest.raises(UnsupportedVersion):
        await admin.list_transactions(longer_than_ms=0)


async def test_a_transaction_is_described_wherever_its_coordinator_moves(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.hold("a", 7, 0)
    nodes.codes = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ]
    found = await admin.describe_transaction("a")
    assert (found.coordinator, found.state, found.partitions) == (1, "Ongoing", [PART])
    nodes.coordinator = 2
    assert (await admin.describe_transaction("a")).coordinator == 2


async def test_an_id_that_nobody_has_is_not_found(admin: Admin) -> None:
    with pytest.raises(KafkaError) as failure:
        await admin.describe_transaction("nobody")
    assert failure.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_five_hundred_partitions_go_into_one_request(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.partitions = 1_200
    wanted = [TopicPartition("t", index) for index in range(nodes.partitions)]
    found = await admin.describe_producers(wanted)
    assert list(found) == wanted
    requests = nodes.seen(1, ApiKey.DESCRIBE_PRODUCERS)
    sizes = [len(topic.partition_indexes) for request in requests for topic in request.topics]
    assert sizes == [500, 500, 200]


async def test_a_leader_that_moved_is_looked_up_again(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    await admin.describe_producers([PART])
    nodes.leader = 2
    nodes.open(7, 11, age_ms=0)
    (producer,) = (await admin.describe_producers([PART]))[PART].producers
    assert (producer.producer_id, producer.start_offset) == (7, 11)


async def test_a_replica_that_is_named_is_asked_and_no_other(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    found = await admin.describe_producers([PART], node_id=2)
    assert found[PART].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not nodes.seen(1, ApiKey.DESCRIBE_PRODUCERS)


async def test_a_partition_that_is_not_there_holds_up_no_other(admin: Admin) -> None:
    strange, beyond = TopicPartition("u", 0), TopicPartition("t", 5)
    found = await admin.describe_producers([strange, beyond, PART])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [found[one].error for one in (strange, beyond, PART)] == [unknown, unknown, 0]


async def test_an_open_transaction_hangs_that_no_id_has(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=16 * MINUTE)
    assert await hanging(admin) == [(7, 11)]


async def test_an_open_transaction_hangs_whose_id_lacks_the_partition(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=16 * MINUTE)
    nodes.hold("a", 7, 1)
    assert await hanging(admin) == [(7, 11)]


async def test_an_open_transaction_does_not_hang_that_an_id_has(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=16 * MINUTE)
    nodes.hold("a", 7, 1, 0)
    assert await hanging(admin) == []


async def test_an_open_transaction_does_not_hang_before_its_time(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=15 * MINUTE)
    assert await hanging(admin) == []
    assert not nodes.seen(1, ApiKey.LIST_TRANSACTIONS)


async def test_nothing_is_said_to_hang_while_a_coordinator_cannot_be_asked(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=16 * MINUTE)
    nodes.log_leader = -1
    with pytest.raises(KafkaError) as failure:
        await hanging(admin)
    assert failure.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_id_that_has_another_producer_id_by_now_holds_nothing(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=16 * MINUTE)
    nodes.hold("a", 8, 0)
    nodes.listed["a"] = 7
    assert await hanging(admin) == [(7, 11)]


async def test_an_id_that_expired_meanwhile_holds_nothing(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=16 * MINUTE)
    nodes.hold("a", 7, 0)
    nodes.codes = [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
    assert await hanging(admin) == [(7, 11)]


async def test_an_abort_marker_names_the_producer_as_it_was_found(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    """The epoch stays, so that the owner goes on; coordinator epoch -1 becomes 0."""
    nodes.open(7, 11, age_ms=0)
    assert await admin.abort_transaction(PART, 11)
    (marker,) = nodes.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert marker.transaction_result is False
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", (0,))]
    assert nodes.brokers[1].seen[-1][0].version == 1


async def test_nothing_is_aborted_where_no_transaction_begins(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    nodes.open(7, 11, age_ms=0)
    assert not await admin.abort_transaction(PART, 12)
    assert not nodes.seen(1, ApiKey.WRITE_TXN_MARKERS)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
async def test_an_abort_is_tried_again_at_the_leader_of_now(
    nodes: ScriptedTransactions, admin: Admin, code: ErrorCode
) -> None:
    nodes.open(7, 11, age_ms=0)
    nodes.marker_codes = [code, code]
    assert await admin.abort_transaction(PART, 11)
    assert len(nodes.markers) == 1


async def test_an_abort_that_is_refused_is_told(nodes: ScriptedTransactions, admin: Admin) -> None:
    nodes.open(7, 11, age_ms=0)
    nodes.marker_codes = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError) as failure:
        await admin.abort_transaction(PART, 11)
    assert failure.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert len(nodes.seen(1, ApiKey.WRITE_TXN_MARKERS)) == 1


async def test_a_transaction_that_ends_before_its_abort_arrives_is_none_that_was_aborted(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    """Our nodes answer 31 to a client whose marker has nothing to abort."""
    nodes.open(7, 11, age_ms=0)
    nodes.marker_codes = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    nodes.ends_first = True
    assert not await admin.abort_transaction(PART, 11)
    assert nodes.markers == []


async def test_a_marker_whose_answer_was_lost_is_not_written_twice(
    nodes: ScriptedTransactions, admin: Admin
) -> None:
    """The second one would end what the producer has begun since, in the same epoch."""
    nodes.open(7, 11, age_ms=0)
    nodes.loses_answers = True
    assert await admin.abort_transaction(PART, 11)
    assert len(nodes.markers) == 1
