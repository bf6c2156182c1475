"""Topics by wish: what is granted, what is refused and why (docs/spec/cluster.md §2.9)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.controller.auto_topic_creation import (
    NODES_START_S,
    TOLD_S,
    AutoTopicCreation,
)
from barnabas.broker.controller.create_topics import KnownCluster, RequestedTopic
from barnabas.client.zookeeper.interface import Watch
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.ports import OFFSETS_TOPIC, STATE_TOPICS, TRANSACTION_TOPIC
from barnabas.coordinator.transactions.config import TransactionConfig
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.names import collides
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster
from tests.replication.logs import turns
from tests.sim.simulated_zookeeper import SimEnsemble


async def refusal(cluster: SmallCluster, **wish: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        await cluster.writer().plan(RequestedTopic(**wish))
    return refused.value


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "there"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "dotted_name"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "going"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "t", "partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "partitions": 2**31 - 1}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": OFFSETS_TOPIC}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "configs": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "configs": {"segment.bytes": "many"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "configs": {"segment.bytes": None}}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "configs": {"local.retention.bytes": "-3"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "configs": {"remote.storage.enable": "true"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "configs": {"remote.log.copy.disable": "true"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "t", "partitions": 1, "assignment": {0: [1]}}, ErrorCode.INVALID_REQUEST),
        ({"name": "t", "assignment": {1: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignment": {0: []}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignment": {0: [1, 1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignment": {0: [1], 1: [1, 2]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignment": {0: [-1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": OFFSETS_TOPIC, "assignment": {0: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_wish_that_cannot_be_granted_has_its_code(
    cluster: SmallCluster, wish: dict[str, Any], code: ErrorCode
) -> None:
    await cluster.start(1, ("broker",))
    await cluster.start(2, ("broker",))
    await cluster.create("there", {0: (1,)})
    await cluster.create("dotted.name", {0: (1,)})
    await cluster.observer.create(znodes.deletion_path("going"))
    assert (await refusal(cluster, **wish)).code is code


async def test_a_wish_may_spell_out_that_nothing_is_tiered(cluster: SmallCluster) -> None:
    await cluster.start(1)
    configs: dict[str, str | None] = {"remote.storage.enable": "false", "local.retention.ms": "-2"}
    plan = await cluster.writer().plan(RequestedTopic(name="t", configs=configs))
    assert plan.configs == configs


async def test_each_partition_gets_as_many_replicas_as_asked_for(cluster: SmallCluster) -> None:
    for node in (1, 2, 3):
        await cluster.start(node)
    plan = await cluster.writer().plan(RequestedTopic(name="t", partitions=4, factor=3))
    assert plan.factor == 3
    assert all(sorted(replicas) == [1, 2, 3] for replicas in plan.assignment.values())
    by_hand = await cluster.writer().plan(RequestedTopic(name="t", assignment={0: [3, 1]}))
    assert by_hand.assignment == {0: (3, 1)}


async def test_no_replica_is_chosen_for_a_node_that_is_known_to_have_another_role(
    cluster: SmallCluster,
) -> None:
    await cluster.start(1)
    await cluster.start(2, ("coordinator",))
    refused = await refusal(cluster, name="t", assignment={0: [1, 2]})
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    refused = await refusal(cluster, name="t", assignment={0: [9], 1: [2]})
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_a_replica_may_be_chosen_for_a_node_that_is_down_and_joins_when_it_comes(
    cluster: SmallCluster,
) -> None:
    """More than there are live nodes, even: ids are not compared with anything, as in Kafka."""
    await cluster.start(1)
    await cluster.create_by_wish(name="t", assignment={0: [9, 1], 1: [1, 8]})
    await cluster.led("t", 1, 1)
    assert (await cluster.state("t", 0)).isr == (1,)
    assert (await cluster.assignment("t")).partitions == {0: (9, 1), 1: (1, 8)}

    late = await cluster.start(9)
    await cluster.until(lambda: ("t", 0) in late.hosted)
    assert late.hosted["t", 0].leader == 1


async def test_a_partition_whose_chosen_nodes_are_all_down_is_led_when_one_of_them_comes(
    cluster: SmallCluster,
) -> None:
    """The other partitions do not wait for it; nor does it matter who rules by then."""
    first = await cluster.start(1)
    await cluster.start(2)
    await cluster.elected()
    await cluster.create_by_wish(name="t", assignment={0: [8, 9], 1: [2, 9]})
    await cluster.led("t", 1, 2)
    assert first.cache.snapshot.partition("t", 0) is None
    assert await cluster.observer.exists(znodes.partition_state_path("t", 0)) is None

    await cluster.bury((await cluster.elected()).id)
    await cluster.start(9)
    await cluster.led("t", 0, 9)
    assert (await cluster.state("t", 0)).isr == (9,)
    assert cluster.nodes[9].hosted["t", 0].is_new


async def test_counts_left_open_are_the_defaults_of_the_node(cluster: SmallCluster) -> None:
    await cluster.start(1)
    plan = await cluster.writer(partitions=7).plan(RequestedTopic(name="t"))
    assert sorted(plan.assignment) == list(range(7))
    assert plan.factor == 1


async def test_settings_and_assignment_are_written_together(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.create_by_wish(name="t", partitions=2, configs={"retention.ms": "5"})
    data, _stat = await cluster.observer.get("/config/topics/t")
    assert znodes.TopicConfig.from_json(data).config == {"retention.ms": "5"}
    data, _stat = await cluster.observer.get("/brokers/topics/t")
    assignment = znodes.TopicAssignment.from_json(data)
    assert assignment.partitions == {0: (1,), 1: (1,)}
    assert assignment.topic_id is not None
    with pytest.raises(Refused) as refused:
        await cluster.create_by_wish(name="t")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_topic_too_large_for_a_znode_is_refused_for_good(cluster: SmallCluster) -> None:
    await cluster.start(1)
    with pytest.raises(Refused) as refused:
        await cluster.create_by_wish(name="t", assignment=dict.fromkeys(range(90_000), (1,)))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not refused.value.code.retriable
    await cluster.create_by_wish(name="t")


async def test_of_two_who_create_one_topic_at_once_the_second_is_refused(
    cluster: SmallCluster,
) -> None:
    await cluster.start(1)
    writer = cluster.writer()
    plans = [await writer.plan(RequestedTopic(name="t")) for _ in range(2)]
    await writer.create(plans[0])
    with pytest.raises(Refused) as refused:
        await writer.create(plans[1])
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_registration_that_is_no_nodes_is_passed_over(cluster: SmallCluster) -> None:
    await cluster.start(1)
    await cluster.observer.create(f"{znodes.BROKER_IDS}/stray", b"")
    assert (await cluster.writer().plan(RequestedTopic(name="t"))).assignment == {0: (1,)}


async def test_the_offsets_topic_is_created_on_demand_on_coordinators(
    cluster: SmallCluster,
) -> None:
    await cluster.start(1, ("coordinator",))
    await cluster.start(2, ("broker",))
    creation = AutoTopicCreation(
        cluster.writer(), CoordinatorConfig(offsets_replication_factor=1), TransactionConfig()
    )
    running = asyncio.create_task(creation.run())
    creation.ask(OFFSETS_TOPIC)
    creation.ask(OFFSETS_TOPIC)
    creation.ask("ordinary")
    await cluster.led(OFFSETS_TOPIC, 49, 1)
    await cluster.led("ordinary", 0, 2)
    running.cancel()
    data, _stat = await cluster.observer.get(f"/config/topics/{OFFSETS_TOPIC}")
    assert znodes.TopicConfig.from_json(data).config == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


async def test_topics_created_on_demand_read_the_names_once_for_all_that_wait(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(1)
    creation = AutoTopicCreation(cluster.writer(), CoordinatorConfig(), TransactionConfig())
    read: list[str] = []
    children = cluster.observer.children

    async def noted(path: str, watch: Watch | None = None) -> list[str]:
        read.append(path)
        return await children(path, watch)

    monkeypatch.setattr(cluster.observer, "children", noted)
    for number in range(20):
        assert creation.ask(f"topic-{number}")
    running = asyncio.create_task(creation.run())
    await cluster.led("topic-19", 0, 1)
    assert read == [znodes.BROKER_TOPICS, znodes.BROKER_IDS]
    # Who asks later may hope for topics and nodes that have come since.
    await cluster.create("a.b", {0: (1,)})
    assert creation.ask("a_b")
    assert creation.ask("later")
    await cluster.led("later", 0, 1)
    running.cancel()
    assert await cluster.observer.exists(znodes.topic_path("a_b")) is None


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


async def tried(creation: AutoTopicCreation, name: str) -> ErrorCode:
    """What is answered for a topic once its creation was tried."""
    running = asyncio.create_task(creation.run())
    creation.ask(name)
    while not creation.ask(name):  # it is queued until then
        await turns()
    running.cancel()
    return creation.answer(name)


async def test_who_asks_again_for_a_topic_that_cannot_be_created_is_told_why(
    cluster: SmallCluster,
) -> None:
    await cluster.start(1)
    await cluster.create("a.b", {0: (1,)})
    clock = Clock()
    creation = AutoTopicCreation(cluster.writer(), CoordinatorConfig(), TransactionConfig(), clock)
    assert creation.answer("a_b") == ErrorCode.LEADER_NOT_AVAILABLE
    assert await tried(creation, "a_b") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert creation.answer("another") == ErrorCode.LEADER_NOT_AVAILABLE
    clock.seconds += TOLD_S + 1
    assert creation.answer("a_b") == ErrorCode.LEADER_NOT_AVAILABLE


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [found.getMessage() for found in caplog.records if found.levelno >= logging.ERROR]


async def test_a_factor_above_the_number_of_nodes_is_told_when_none_came_for_some_time(
    cluster: SmallCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The log called it an error of nodes that were started together."""
    await cluster.start(1)
    clock, wanted = Clock(), CoordinatorConfig(offsets_replication_factor=2)
    creation = AutoTopicCreation(cluster.writer(), wanted, TransactionConfig(), clock)
    for _ in range(2):
        assert await tried(creation, OFFSETS_TOPIC) == ErrorCode.LEADER_NOT_AVAILABLE
        clock.seconds += NODES_START_S / 2
    assert not errors_in(caplog)
    for _ in range(2):
        assert await tried(creation, OFFSETS_TOPIC) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert len(errors_in(caplog)) == 1
    await cluster.start(2)
    assert await tried(creation, OFFSETS_TOPIC) == ErrorCode.LEADER_NOT_AVAILABLE
    assert await cluster.observer.exists(znodes.topic_path(OFFSETS_TOPIC)) is not None


@given(
    existing=st.lists(st.text("ab._", min_size=1, max_size=4), unique=True),
    created=st.lists(st.text("ab._", min_size=1, max_size=4)),
    wanted=st.text("ab._", min_size=1, max_size=4),
)
async def test_names_read_once_collide_as_if_all_were_compared(
    existing: list[str], created: list[str], wanted: str
) -> None:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    zookeeper = ensemble.connect()
    await zookeeper.create(znodes.BROKER_TOPICS, parents=True)
    for name in existing:
        await zookeeper.create(znodes.topic_path(f"t{name}"))
    known = KnownCluster(zookeeper)
    assert await known.has_topic("t") is False
    names = {f"t{name}" for name in (*existing, *created)}
    for name in created:
        known.add(f"t{name}")
    assert await known.has_topic(f"t{wanted}") is (f"t{wanted}" in names)
    found = await known.colliding(f"t{wanted}")
    expected = collides(f"t{wanted}", names)
    assert (found is None) is (expected is None)
    assert found is None or collides(f"t{wanted}", [found]) == found


async def test_the_transaction_log_is_created_on_demand_with_five_settings_on_coordinators(
    cluster: SmallCluster,
) -> None:
    """docs/spec/transactions.md check T1.1: exactly the settings of §1.1, its own and no others."""
    await cluster.start(1, ("coordinator",))
    await cluster.start(2, ("broker",))
    wanted = TransactionConfig(
        log_partitions=3, log_replication_factor=1, log_min_isr=1, log_segment_bytes=1 << 20
    )
    creation = AutoTopicCreation(cluster.writer(), CoordinatorConfig(), wanted)
    running = asyncio.create_task(creation.run())
    creation.ask(TRANSACTION_TOPIC)
    await cluster.led(TRANSACTION_TOPIC, 2, 1)
    running.cancel()
    assert (await cluster.assignment(TRANSACTION_TOPIC)).partitions == {0: (1,), 1: (1,), 2: (1,)}
    data, _stat = await cluster.observer.get(f"/config/topics/{TRANSACTION_TOPIC}")
    assert znodes.TopicConfig.from_json(data).config == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "1048576",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_state_topic_is_never_made_to_be_deleted_by_age(
    cluster: SmallCluster, policy: str
) -> None:
    await cluster.start(1)
    for topic in sorted(STATE_TOPICS):
        wish = {"name": topic, "factor": 1, "configs": {"cleanup.policy": policy}}
        assert (await refusal(cluster, **wish)).code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("topic", sorted(STATE_TOPICS))
async def test_a_topic_that_cannot_be_created_on_demand_is_reported_once(
    cluster: SmallCluster, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """docs/spec/cluster.md §5.1 check F4, docs/spec/transactions.md check T1.2.

    The factor is not lowered silently.
    """
    node = await cluster.start(1)
    await cluster.start(2)
    clock, wanted = Clock(), CoordinatorConfig(offsets_replication_factor=3)
    creation = AutoTopicCreation(cluster.writer(), wanted, TransactionConfig(), clock)
    running = asyncio.create_task(creation.run())
    for marker in ("first", "second", "third"):
        creation.ask(topic)
        creation.ask(marker)
        await cluster.until(lambda marker=marker: marker in node.cache.snapshot.topics)  # type: ignore[misc]
        clock.seconds += NODES_START_S
    running.cancel()
    reports = [record for record in caplog.records if "cannot create" in record.message]
    assert len(reports) == 1
    assert await cluster.observer.exists(f"/brokers/topics/{topic}") is None
