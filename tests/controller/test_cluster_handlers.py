"""What clients hear about the cluster, and what happens when they create and delete topics."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordination.coordinator_ports import CoordinatorTopics
from barnabas.broker.handlers.acls import AclsHandler
from barnabas.broker.handlers.describe_cluster import DescribeClusterHandler
from barnabas.broker.handlers.describe_configs import inherited_sources
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.handlers.topics import TopicsHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.node_config import load
from barnabas.broker.storage.cooperative import at_once
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.protocol.api import ApiKey
from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_acls,
    create_topics,
    delete_topics,
    describe_acls,
    describe_cluster,
    metadata,
    update_metadata,
)
from barnabas.protocol.names import INTERNAL_TOPICS
from tests.controller.small_cluster import SmallCluster, SmallNode
from tests.handlers.peer import SomePeer, call
from tests.sim.simulated_loop import SimulatedLoop

ID = bytes(range(16))


def broker(node: int, *listeners: str) -> update_metadata.Broker:
    endpoints = [
        update_metadata.Endpoint(port=9000 + node, host="h", listener=name) for name in listeners
    ]
    return update_metadata.Broker(id=node, endpoints=endpoints, rack=None)


def topic(name: str, leader: int, *, topic_id: bytes = ID) -> update_metadata.TopicState:
    return update_metadata.TopicState(
        topic_name=name,
        topic_id=topic_id,
        partition_states=[
            update_metadata.PartitionState(
                partition_index=0,
                leader=leader,
                leader_epoch=3,
                isr=[1],
                replicas=[1, 9],
                offline_replicas=[9],
            )
        ],
    )


@pytest.fixture
def cache() -> MetadataCache:
    known = MetadataCache()
    known.update(
        update_metadata.UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=4,
            topic_states=[
                topic("led", 1),
                topic("dead", 9, topic_id=b"d" * 16),
                topic("hidden", 2, topic_id=b"h" * 16),
                topic("__consumer_offsets", 1, topic_id=b"o" * 16),
            ],
            live_brokers=[broker(1, "PLAINTEXT", "INTERNAL"), broker(2, "INTERNAL")],
        )
    )
    return known


def test_a_node_that_was_told_nothing_yet_knows_no_topic_to_be_missing() -> None:
    created: list[str] = []
    answer = described(MetadataCache(), 8, "t", created=created)
    assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert not created


@pytest.mark.parametrize(
    ("leader", "replicas", "may_lead"),
    [(1, [1], True), (-1, [1], True), (9, [1, 9], True), (2, [1, 2], False), (2, [2], False)],
)
def test_a_node_may_lead_what_it_has_a_replica_of_and_nobody_else_leads(
    leader: int, replicas: list[int], may_lead: bool
) -> None:
    cache = MetadataCache()
    ports = CoordinatorTopics(
        1, cache, lambda topic: None, topic=OFFSETS_TOPIC, counts={OFFSETS_TOPIC: lambda: 50}
    )
    assert ports.may_lead(0), "it does not know the cluster"
    state = update_metadata.PartitionState(leader=leader, replicas=replicas, isr=replicas)
    offsets = update_metadata.TopicState(
        topic_name="__consumer_offsets", topic_id=b"o" * 16, partition_states=[state]
    )
    cache.update(
        update_metadata.UpdateMetadataRequest(
            controller_id=1,
            topic_states=[offsets],
            live_brokers=[broker(1, "INTERNAL"), broker(2, "INTERNAL")],
        )
    )
    assert ports.may_lead(0) is may_lead
    assert ports.may_lead(1), "nothing was heard of it yet"


def test_a_node_without_its_lease_names_others_as_coordinators_and_not_itself() -> None:
    cache = MetadataCache()
    leases = [False]
    ports = CoordinatorTopics(
        1,
        cache,
        print,
        topic=OFFSETS_TOPIC,
        counts={OFFSETS_TOPIC: lambda: 2},
        may_answer=lambda: leases[-1],
    )
    states = [
        update_metadata.PartitionState(partition_index=index, leader=leader)
        for index, leader in enumerate((1, 2))
    ]
    offsets = update_metadata.TopicState(topic_name="__consumer_offsets", partition_states=states)
    cache.update(
        update_metadata.UpdateMetadataRequest(
            controller_id=1,
            topic_states=[offsets],
            live_brokers=[broker(1, "INTERNAL"), broker(2, "INTERNAL")],
        )
    )
    assert ports.coordinator_endpoint(0, "INTERNAL") is None
    assert ports.coordinator_endpoint(1, "INTERNAL") == (2, "h", 9002)
    leases.append(True)
    assert ports.coordinator_endpoint(0, "INTERNAL") == (1, "h", 9001)


@pytest.mark.parametrize(
    ("ordered", "named"),
    [
        (None, (1, "h", 9001)),
        ((2, 6), (2, "h", 9002)),
        ((-1, 6), None),
        ((-1, 5), None),
        ((1, 5), (1, "h", 9001)),
        ((2, 4), (1, "h", 9001)),
    ],
    ids=["no replica", "moved", "leaderless", "deposed", "same", "outdated"],
)
def test_the_old_coordinator_names_the_new_one_from_the_order_that_moves_it(
    ordered: tuple[int, int] | None, named: tuple[int, str, int] | None
) -> None:
    """What is told to everybody comes a millisecond after the order to resign."""
    cache = MetadataCache()
    ports = CoordinatorTopics(
        1,
        cache,
        print,
        topic=OFFSETS_TOPIC,
        counts={OFFSETS_TOPIC: lambda: 1},
        ordered=lambda partition: ordered,
    )
    state = update_metadata.PartitionState(partition_index=0, leader=1, leader_epoch=5)
    offsets = update_metadata.TopicState(topic_name="__consumer_offsets", partition_states=[state])
    cache.update(
        update_metadata.UpdateMetadataRequest(
            controller_id=1,
            topic_states=[offsets],
            live_brokers=[broker(1, "INTERNAL"), broker(2, "INTERNAL")],
        )
    )
    assert ports.coordinator_endpoint(0, "INTERNAL") == named


def described(
    cache: MetadataCache, version: int, *names: str, created: list[str] | None = None
) -> metadata.MetadataResponse:
    handler = MetadataHandler(cache, "cluster", create=None if created is None else created.append)
    request = metadata.MetadataRequest(topics=[metadata.Topic(name=name) for name in names])
    return at_once(handler.describing(call(request, version)))


def test_metadata_tells_the_nodes_of_the_listener_that_was_asked(cache: MetadataCache) -> None:
    answer = described(cache, 12, "led")
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "h", 9001)]
    assert (answer.cluster_id, answer.controller_id) == ("cluster", 1)
    handler = MetadataHandler(cache, "cluster", create=None)
    inside = call(metadata.MetadataRequest(), 12, peer=SomePeer("INTERNAL"))
    assert [node.node_id for node in at_once(handler.describing(inside)).brokers] == [1, 2]


async def test_a_node_that_was_told_of_no_node_answers_once_it_was(cache: MetadataCache) -> None:
    """librdkafka 2.16 asks no more after an answer without nodes and without topics."""
    empty = MetadataCache()
    answer = MetadataHandler(empty, "cluster", create=None).answer(
        call(metadata.MetadataRequest(topics=[]), 12)
    )
    assert isinstance(answer, Coroutine)
    waiting = asyncio.create_task(answer)
    await asyncio.sleep(0)
    listener = SomePeer().listener
    empty.update(update_metadata.UpdateMetadataRequest(live_brokers=[broker(7, "ANOTHER")]))
    await asyncio.sleep(0)
    assert not waiting.done()
    empty.update(update_metadata.UpdateMetadataRequest(live_brokers=[broker(8, listener)]))
    assert [node.node_id for node in (await waiting).brokers] == [8]


WHO_IS_THERE = [
    (MetadataHandler(MetadataCache(), "c", create=None), metadata.MetadataRequest(topics=[]), 12),
    (DescribeClusterHandler(MetadataCache(), "c"), describe_cluster.DescribeClusterRequest(), 1),
]


@pytest.mark.parametrize(("handler", "request_", "version"), WHO_IS_THERE, ids=["m", "d"])
def test_a_node_that_hears_of_no_node_closes_the_connection_behind_its_answer(
    handler: MetadataHandler | DescribeClusterHandler, request_: Any, version: int
) -> None:
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(1)) as runner:
        peer = SomePeer()

        async def ask() -> list[Any]:
            answer = handler.answer(call(request_, version, peer=peer))
            assert isinstance(answer, Coroutine)
            found = [*(await answer).brokers]
            assert not peer.is_closed
            await asyncio.sleep(0)
            return found

        assert runner.run(ask()) == []
        assert peer.is_closed


@pytest.mark.parametrize(
    ("version", "name", "code", "leader"),
    [
        (12, "led", ErrorCode.NONE, 1),
        (12, "dead", ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (12, "hidden", ErrorCode.LISTENER_NOT_FOUND, -1),
        (5, "hidden", ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (0, "led", ErrorCode.REPLICA_NOT_AVAILABLE, 1),
    ],
)
def test_a_partition_says_why_it_cannot_be_used(
    cache: MetadataCache, version: int, name: str, code: ErrorCode, leader: int
) -> None:
    (found,) = described(cache, version, name).topics
    (partition,) = found.partitions
    assert found.error_code == ErrorCode.NONE
    assert (partition.error_code, partition.leader_id) == (code, leader)
    assert list(partition.replica_nodes) == ([1, 9] if version else [1])


def test_an_empty_list_of_topics_means_all_in_v0_and_none_later(cache: MetadataCache) -> None:
    assert len(list(described(cache, 0).topics)) == 4
    assert list(described(cache, 1).topics) == []
    everything = call(metadata.MetadataRequest(topics=None), 1)
    handler = MetadataHandler(cache, "cluster", create=None)
    internal = {
        found.name: found.is_internal for found in at_once(handler.describing(everything)).topics
    }
    assert internal["__consumer_offsets"]
    assert not internal["led"]


def test_a_missing_topic_is_created_behind_the_answer_when_both_sides_agree(
    cache: MetadataCache,
) -> None:
    created: list[str] = []
    answer = described(cache, 12, "new", "no/name", "new", created=created)
    assert [found.error_code for found in answer.topics] == [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert created == ["new"]
    (missing,) = described(cache, 12, "new").topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    handler = MetadataHandler(cache, "cluster", create=created.append)
    request = metadata.MetadataRequest(
        topics=[metadata.Topic(name="other")], allow_auto_topic_creation=False
    )
    (missing,) = at_once(handler.describing(call(request, 4))).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert created == ["new"]


def test_a_missing_topic_that_cannot_be_created_is_answered_with_the_reason(
    cache: MetadataCache,
) -> None:
    created: list[str] = []
    handler = MetadataHandler(
        cache,
        "cluster",
        create=created.append,
        creation_answer={"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}.__getitem__,
    )
    request = metadata.MetadataRequest(topics=[metadata.Topic(name="a_b")])
    (missing,) = at_once(handler.describing(call(request, 12))).topics
    assert missing.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert created == ["a_b"]  # what was in its way may be gone


def test_the_audit_topic_is_not_made_for_whoever_names_it_and_a_state_topic_is(
    cache: MetadataCache,
) -> None:
    """docs/spec/transactions.md §1.1: Metadata that names the transaction log has it created."""
    created: list[str] = []
    (missing,) = described(cache, 12, AUDIT_TOPIC, created=created).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert created == []
    (missing,) = described(cache, 12, TRANSACTION_TOPIC, created=created).topics
    assert missing.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert created == [TRANSACTION_TOPIC]


def test_topics_are_found_by_id_from_v12(cache: MetadataCache) -> None:
    handler = MetadataHandler(cache, "cluster", create=None)
    request = metadata.MetadataRequest(
        topics=[metadata.Topic(name=None, topic_id=ID), metadata.Topic(topic_id=b"?" * 16)]
    )
    request.topics[1].name = None  # type: ignore[index]
    known, unknown = at_once(handler.describing(call(request, 12))).topics
    assert (known.name, known.topic_id) == ("led", ID)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    early, _other = at_once(handler.describing(call(request, 10))).topics
    assert early.error_code == ErrorCode.INVALID_REQUEST


def test_a_snapshot_never_changes_and_a_deleted_topic_is_gone(cache: MetadataCache) -> None:
    before = cache.snapshot
    cache.update(
        update_metadata.UpdateMetadataRequest(
            controller_id=2, controller_epoch=5, topic_states=[topic("led", -2)], live_brokers=[]
        )
    )
    assert "led" in before.topics
    assert "led" not in cache.snapshot.topics
    assert "led" not in cache.snapshot.topic_ids
    assert "dead" in cache.snapshot.topics
    assert described(cache, 12).controller_id == -1


def test_describe_cluster_answers_for_brokers_only(cache: MetadataCache) -> None:
    handler = DescribeClusterHandler(cache, "cluster")
    answer = handler.describe(call(describe_cluster.DescribeClusterRequest(), 1))
    assert [node.broker_id for node in answer.brokers] == [1]
    assert answer.controller_id == 1
    wrong = describe_cluster.DescribeClusterRequest(endpoint_type=2)
    refused: Any = handler.answer(call(wrong, 1))
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_access_rules_are_refused_one_by_one() -> None:
    serve = AclsHandler(None).handlers()
    listing: Any = serve[ApiKey.DESCRIBE_ACLS](call(describe_acls.DescribeAclsRequest(), 3))
    assert listing.error_code == ErrorCode.SECURITY_DISABLED
    request = create_acls.CreateAclsRequest(creations=[create_acls.Creation()] * 2)
    made: Any = serve[ApiKey.CREATE_ACLS](call(request, 3))
    assert [item.error_code for item in made.results] == [ErrorCode.SECURITY_DISABLED] * 2


def topics_handler(
    cluster: SmallCluster, node: SmallNode, *, may_delete: bool = True
) -> TopicsHandler:
    return TopicsHandler(
        cluster.writer(),
        node.cache,
        is_controller=lambda: node.controller.is_active,
        heard=node.controller.heard,
        may_delete=may_delete,
    )


def wanted(name: str, partitions: int = 1, factor: int = 1) -> create_topics.Topic:
    return create_topics.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=[create_topics.Config(name="retention.ms", value="5")],
    )


async def test_created_topics_are_answered_when_every_partition_is_led(
    cluster: SmallCluster,
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node)
    request = create_topics.CreateTopicsRequest(
        topics=[wanted("a", 3), wanted("b", 1, 2), wanted("c"), wanted("c")], timeout_ms=60_000
    )
    answer = await handler.create(call(request, 7))
    codes = {result.name: result.error_code for result in answer.topics}
    assert codes == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.INVALID_REPLICATION_FACTOR,
        "c": ErrorCode.INVALID_REQUEST,
    }
    assert cluster.knows_leader("a", 2, 1)
    made = answer.topics[0]
    assert made.topic_id == node.cache.snapshot.topic_ids["a"]
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    settings = {item.name: (item.value, item.config_source) for item in made.configs or ()}
    assert settings["retention.ms"] == ("5", 1)
    assert settings["preallocate"] == ("false", 5)
    assert settings["remote.storage.enable"] == ("false", 5)
    assert settings["local.retention.ms"] == ("-2", 5)
    assert settings["cleanup.policy"] == ("delete", 5)


async def test_a_created_topic_tells_where_what_it_inherits_comes_from(
    cluster: SmallCluster,
) -> None:
    """As DescribeConfigs does: the node's file, what was set at run time, or a default."""
    node = await cluster.start(1)
    await cluster.elected()
    file = load({"zookeeper.connect": "z:1", "log.dirs": "d", "log.segment.bytes": "70000"})
    nodes = DynamicNodeConfig(cluster.observer, 1, file)
    handler = TopicsHandler(
        cluster.writer(),
        node.cache,
        is_controller=lambda: node.controller.is_active,
        heard=node.controller.heard,
        may_delete=True,
        inherited=lambda: inherited_sources(nodes),
    )
    request = create_topics.CreateTopicsRequest(topics=[wanted("a")], timeout_ms=60_000)
    (made,) = (await handler.create(call(request, 7))).topics
    sources = {item.name: item.config_source for item in made.configs or ()}
    assert (sources["retention.ms"], sources["segment.bytes"], sources["preallocate"]) == (1, 4, 5)


async def test_a_creation_is_answered_when_the_last_node_has_heard_of_the_topic(
    cluster: SmallCluster,
) -> None:
    nodes = [await cluster.start(number) for number in (1, 2)]
    await cluster.elected()
    controller, other = sorted(nodes, key=lambda node: not node.controller.is_active)
    assert await controller.controller.heard(60)
    other.listens.clear()
    request = create_topics.CreateTopicsRequest(topics=[wanted("a", 2)], timeout_ms=60_000)
    handler = topics_handler(cluster, controller)
    creation = asyncio.create_task(handler.create(call(request, 7)))
    assert await controller.cache.wait_until(lambda snapshot: "a" in snapshot.topics, 60)
    assert not creation.done()
    other.listens.set()
    assert (await creation).topics[0].error_code == ErrorCode.NONE
    assert "a" in other.cache.snapshot.topics


async def test_a_topic_chosen_for_nodes_that_are_down_is_answered_as_timed_out_where_none_can_lead(
    cluster: SmallCluster,
) -> None:
    """As in Kafka the topic is there, and stays."""
    node = await cluster.start(1)
    await cluster.elected()
    chosen = {"led": [1, 9], "leaderless": [8, 9]}
    topics = [
        create_topics.Topic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[create_topics.Assignment(partition_index=0, broker_ids=nodes)],
            configs=[],
        )
        for name, nodes in chosen.items()
    ]
    request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=3000)
    answer = await topics_handler(cluster, node).create(call(request, 7))
    codes = {result.name: result.error_code for result in answer.topics}
    assert codes == {"led": ErrorCode.NONE, "leaderless": ErrorCode.REQUEST_TIMED_OUT}
    assert (await cluster.assignment("leaderless")).partitions == {0: (8, 9)}


async def test_no_time_to_wait_is_answered_as_timed_out_although_the_topic_comes(
    cluster: SmallCluster,
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    request = create_topics.CreateTopicsRequest(topics=[wanted("a")], timeout_ms=0)
    answer = await topics_handler(cluster, node).create(call(request, 5))
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    await cluster.led("a", 0, 1)


async def test_a_wish_to_validate_writes_nothing(cluster: SmallCluster) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    request = create_topics.CreateTopicsRequest(topics=[wanted("a")], validate_only=True)
    answer = await topics_handler(cluster, node).create(call(request, 5))
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert await cluster.observer.children("/brokers/topics") == []


async def test_another_node_than_the_controller_creates_and_deletes_nothing(
    cluster: SmallCluster,
) -> None:
    await cluster.start(1)
    await cluster.elected()
    other = await cluster.start(2, ("broker",))
    handler = topics_handler(cluster, other)
    creation = create_topics.CreateTopicsRequest(topics=[wanted("a")], timeout_ms=60_000)
    made = await handler.create(call(creation, 5))
    assert made.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    deletion = delete_topics.DeleteTopicsRequest(topic_names=["a"], timeout_ms=60_000)
    gone = await handler.delete(call(deletion, 5))
    assert gone.responses[0].error_code == ErrorCode.NOT_CONTROLLER


async def test_a_name_is_free_again_when_its_deletion_is_answered(cluster: SmallCluster) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node)
    creation = create_topics.CreateTopicsRequest(topics=[wanted("a")], timeout_ms=60_000)
    for _ in range(3):
        made = await handler.create(call(creation, 7))
        assert made.topics[0].error_code == ErrorCode.NONE
        deletion = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.Topic(topic_id=made.topics[0].topic_id)], timeout_ms=60_000
        )
        gone = await handler.delete(call(deletion, 6))
        assert (gone.responses[0].error_code, gone.responses[0].name) == (ErrorCode.NONE, "a")


async def test_a_topic_that_only_others_heard_of_yet_is_deleted(cluster: SmallCluster) -> None:
    """Clients know a topic as soon as one node does, and the controller may hear of it last."""
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node)
    creation = create_topics.CreateTopicsRequest(topics=[wanted("a")], timeout_ms=60_000)
    await handler.create(call(creation, 7))
    node.cache.snapshot = replace(node.cache.snapshot, topics={})
    deletion = delete_topics.DeleteTopicsRequest(topic_names=["a"], timeout_ms=60_000)
    assert (await handler.delete(call(deletion, 5))).responses[0].error_code == ErrorCode.NONE
    assert await cluster.observer.children("/brokers/topics") == []


@pytest.mark.parametrize(
    ("version", "may_delete", "code"),
    [
        (3, True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, False, ErrorCode.TOPIC_DELETION_DISABLED),
        (2, False, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_deletion_that_cannot_be_has_its_code(
    cluster: SmallCluster, version: int, may_delete: bool, code: ErrorCode
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node, may_delete=may_delete)
    request = delete_topics.DeleteTopicsRequest(topic_names=["nobody"], timeout_ms=1000)
    answer = await handler.delete(call(request, version))
    assert answer.responses[0].error_code == code


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_an_internal_topic_is_deleted_by_force_alone(
    cluster: SmallCluster, name: str
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node)
    creation = create_topics.CreateTopicsRequest(topics=[wanted(name)], timeout_ms=60_000)
    assert (await handler.create(call(creation, 5))).topics[0].error_code == ErrorCode.NONE
    deletion = call(delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)
    refused = (await handler.delete(deletion)).responses[0]
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name in node.cache.snapshot.topics
    deletion.client_id = "barnabas-admin:force-internal"
    assert (await handler.delete(deletion)).responses[0].error_code == ErrorCode.NONE
    assert name not in node.cache.snapshot.topics


async def test_waiting_for_metadata_ends_at_its_time(cache: MetadataCache) -> None:
    assert not await cache.wait_until(lambda snapshot: "x" in snapshot.topics, 0.01)
    waiting = asyncio.create_task(cache.wait_until(lambda snapshot: "x" in snapshot.topics, 5))
    await asyncio.sleep(0)
    cache.update(
        update_metadata.UpdateMetadataRequest(
            controller_id=1, topic_states=[topic("x", 1)], live_brokers=[]
        )
    )
    assert await waiting
    assert cache.on_change == []
