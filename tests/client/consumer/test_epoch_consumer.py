"""A consumer of the consumer protocol does what each answer of its coordinator asks.

Source: docs/spec/consumer-groups.md §12; KIP-848.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import ANY

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.consumer.epoch_consumer import EpochConsumer
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.consumer.rebalance_listener import PartitionSet, RebalanceListener
from barnabas.client.errors import CommitFailed, KafkaError, UnsupportedVersion
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.client.scripted_consumer_group import ScriptedConsumerGroup
from tests.harness.ownership import Ownership

CONFIG = ConsumerConfig(group_protocol="consumer", auto_offset_reset="earliest")
QUICK = FetchConfig(max_wait_ms=20)
CLIENT = ClientConfig(retry_backoff_ms=5)
SOON_S = 90.0
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
FENCING = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH]
MOVED = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
FATAL = [
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.INVALID_REGULAR_EXPRESSION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
T = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(2) as cluster:
        cluster.topic("t", 4)
        yield cluster


@pytest.fixture
def group(cluster: ScriptedCluster) -> ScriptedConsumerGroup:
    return ScriptedConsumerGroup(cluster)


@pytest.fixture(autouse=True)
def no_mistakes(group: ScriptedConsumerGroup) -> Any:
    yield
    assert group.mistakes == []


class Noting(RebalanceListener):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, PartitionSet]] = []

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        self.told.append(("revoked", topic_partitions))

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        self.told.append(("assigned", topic_partitions))

    async def on_lost(self, topic_partitions: PartitionSet) -> None:
        self.told.append(("lost", topic_partitions))


def consumer_of(cluster: ScriptedCluster, *topics: str, **changes: Any) -> Consumer:
    options = {"config": CONFIG, "fetch": QUICK, "client": CLIENT, **changes}
    names = topics or (() if "pattern" in options else ("t",))
    return Consumer(cluster.bootstrap, *names, group="g", **options)


def membership(consumer: Consumer) -> EpochConsumer:
    assert isinstance(consumer._member, EpochConsumer)
    return consumer._member


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def has(consumer: Consumer, *partitions: TopicPartition) -> None:
    await until(lambda: consumer.assignment == set(partitions))


async def settled(consumer: Consumer, *partitions: TopicPartition) -> None:
    await has(consumer, *partitions)
    await until(membership(consumer).is_settled.is_set)


def acknowledged(group: ScriptedConsumerGroup, *partitions: int) -> bool:
    """The last heartbeat that said what it owns said this."""
    said = [request for request in group.said() if request.topic_partitions is not None]
    owned = [set(topic.partitions) for topic in said[-1].topic_partitions or ()] if said else []
    return owned == ([set(partitions)] if partitions else [])


async def test_a_member_reads_what_the_coordinator_assigns_and_acknowledges_it(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    listener = Noting()
    for place in T:
        cluster.logs[place].add(b"%d" % place.partition)
    async with consumer_of(cluster, listener=listener) as consumer:
        found: list[bytes | None] = []
        while len(found) < 4:
            batch = await consumer.next_batch(timeout_s=SOON_S)
            assert batch is not None
            found += batch.values()
        await until(lambda: acknowledged(group, 0, 1, 2, 3))
        await consumer.commit()
    assert sorted(map(bytes.decode, filter(None, found))) == ["0", "1", "2", "3"]
    assert {offset for offset, _, _ in cluster.committed.values()} == {1}
    assert listener.told == [("assigned", frozenset(T)), ("revoked", frozenset(T))]
    assert group.said()[-1].member_epoch == -1
    assert not group.members


async def test_heartbeats_without_news_say_nothing(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
        await until(lambda: acknowledged(group, 0, 1, 2, 3))
        count = len(group.said())
        await until(lambda: len(group.said()) > count + 3)
        for request in group.said()[count + 1 :]:
            assert request == ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=request.member_id, member_epoch=request.member_epoch
            )


async def test_what_is_to_be_given_up_is_read_on_until_the_next_poll_and_then_acknowledged(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    for place in T:
        cluster.logs[place].add(b"x")
    listener = Noting()
    async with consumer_of(cluster, listener=listener) as consumer:
        await settled(consumer, *T)
        batch = await consumer.next_batch(1, timeout_s=SOON_S)
        assert batch is not None
        await until(lambda: acknowledged(group, 0, 1, 2, 3))
        async with consumer_of(cluster) as other:
            await until(lambda: membership(consumer).is_waiting)
            count = len(group.said())
            await until(lambda: len(group.said()) > count + 6)
            assert consumer.assignment == set(T), "heartbeats went on, and nothing was given up"
            assert other.assignment == set()
            assert ("revoked", frozenset(T)) not in listener.told
            await batch.commit()
            await consumer.next_batch(1, timeout_s=0)
            await until(lambda: len(other.assignment) == 2)
            await until(lambda: len(consumer.assignment) == 2)
            assert not consumer.assignment & other.assignment
            await until(lambda: len(membership(consumer).assignment) == 2)
    kinds = [kind for kind, places in listener.told if places]
    assert kinds[:2] == ["assigned", "revoked"]
    assert listener.told[2] == ("assigned", frozenset())


async def test_offsets_are_committed_before_their_partition_is_acknowledged_as_given_up(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    for place in T:
        cluster.logs[place].add(b"x")
    async with consumer_of(cluster) as consumer:
        seen = 0
        while seen < 4:
            batch = await consumer.next_batch(timeout_s=SOON_S)
            assert batch is not None
            seen += len(batch)
        async with consumer_of(cluster) as other:
            found = None
            while len(other.assignment) < 2:
                await consumer.next_batch(timeout_s=0.01)
                found = found or await other.next_batch(timeout_s=0.01)
            assert found is None, "read again what the one before had read"
            assert cluster.committed.keys() >= set(other.assignment)


async def test_a_coordinator_that_loads_is_asked_again(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    group.codes[HEARTBEAT] = [loading, loading]
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
    assert {node for node, _, code in group.heartbeats if code == loading} == {1}


@pytest.mark.parametrize("code", MOVED)
async def test_a_coordinator_that_moved_is_found_and_told_everything(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup, code: ErrorCode
) -> None:
    listener = Noting()
    async with consumer_of(cluster, listener=listener) as consumer:
        await settled(consumer, *T)
        group.codes[HEARTBEAT] = [code]
        cluster.coordinator = 2
        await until(lambda: any(node == 2 and not said for node, _, said in group.heartbeats))
        first = next(request for node, request, said in group.heartbeats if node == 2 and not said)
        assert first.member_epoch > 0
        assert first.subscribed_topic_names == ["t"]
        assert first.rebalance_timeout_ms == CONFIG.max_poll_interval_ms
        assert first.topic_partitions is not None
        assert len(group.members) == 1
        assert [kind for kind, _ in listener.told] == ["assigned"]


@pytest.mark.parametrize("is_owning", [False, True])
async def test_a_lost_answer_costs_nothing(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup, is_owning: bool
) -> None:
    listener = Noting()
    if not is_owning:
        group.lost_answers = 1
    async with consumer_of(cluster, listener=listener) as consumer:
        await settled(consumer, *T)
        if is_owning:
            group.lost_answers = 1
            group.bump()
            await until(lambda: not group.lost_answers)
            epoch = group.epoch
            await until(lambda: membership(consumer).identity.generation == epoch)
        await settled(consumer, *T)
        assert [kind for kind, _ in listener.told] == ["assigned"]
    assert not [code for _, _, code in group.heartbeats if code in FENCING]


@pytest.mark.parametrize("code", FENCING)
async def test_a_fenced_member_loses_all_and_joins_again_by_its_id(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup, code: ErrorCode
) -> None:
    listener = Noting()
    async with consumer_of(cluster, listener=listener) as consumer:
        await settled(consumer, *T)
        member_id = membership(consumer).member.member_id
        group.codes[HEARTBEAT] = [code]
        await until(lambda: not group.codes[HEARTBEAT])
        await until(lambda: len(listener.told) == 3)
        await settled(consumer, *T)
        joins = [request for request in group.said() if request.member_epoch == 0]
        assert [request.member_id for request in joins] == [member_id] * 2
    kinds = [kind for kind, _ in listener.told]
    assert kinds == ["assigned", "lost", "assigned", "revoked"]


async def test_a_member_that_was_fenced_hands_out_nothing_and_stores_nothing_of_before(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    for place in T:
        cluster.logs[place].add(b"x", b"y")
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
        batch = await consumer.next_batch(1, timeout_s=SOON_S)
        assert batch is not None
        group.fence(membership(consumer).member.member_id)
        await until(lambda: membership(consumer).member.is_out)
        assert consumer.assignment == set()
        joins = len([request for request in group.said() if request.member_epoch == 0])
        with pytest.raises(CommitFailed) as failure:
            await batch.commit()
        assert not failure.value.retriable
        assert joins == 1, "joins again before the application asks for more"
        again = await consumer.next_batch(1, timeout_s=SOON_S)
        assert again is not None
    assert all(offset <= 2 for offset, _, _ in cluster.committed.values())


async def test_offsets_of_what_is_being_lost_do_not_set_back_who_reads_it_next(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    is_told, may_go_on = asyncio.Event(), asyncio.Event()

    class Slow(RebalanceListener):
        async def on_lost(self, topic_partitions: PartitionSet) -> None:
            is_told.set()
            await may_go_on.wait()

    async with consumer_of(cluster, listener=Slow()) as consumer:
        await settled(consumer, *T)
        group.fence(membership(consumer).member.member_id)
        await is_told.wait()
        cluster.committed[T[0]] = (9, "", 0)
        committing = asyncio.ensure_future(consumer.commit({T[0]: 1}))
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(CommitFailed):
            await committing
        await settled(consumer, *T)
    assert cluster.committed[T[0]][0] == 9


@pytest.mark.parametrize("code", FATAL)
async def test_what_no_other_try_mends_is_raised_and_ends_the_heartbeats(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup, code: ErrorCode
) -> None:
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
        group.codes[HEARTBEAT] = [code]
        await until(lambda: membership(consumer).failure is not None)
        count = len(group.heartbeats)
        for _ in range(2):
            with pytest.raises(KafkaError) as failure:
                await consumer.next_batch(timeout_s=SOON_S)
            assert failure.value.code is code
        assert consumer.assignment == set()
    assert len(group.heartbeats) == count


async def test_a_topic_that_may_not_be_read_is_told_once_and_what_is_held_stays(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
        group.codes[HEARTBEAT] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaError) as failure:
            await consumer.next_batch(timeout_s=SOON_S)
        assert failure.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await consumer.next_batch(timeout_s=0.01) is None
        assert consumer.assignment == set(T)


async def test_a_coordinator_without_the_protocol_is_named(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    for broker in cluster.brokers.values():
        broker.answers = {key: does for key, does in broker.answers.items() if key != HEARTBEAT}
    async with consumer_of(cluster) as consumer:
        with pytest.raises(UnsupportedVersion, match="ConsumerGroupHeartbeat"):
            await consumer.next_batch(timeout_s=SOON_S)


async def test_a_coordinator_with_the_unreleased_version_is_no_use(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    for broker in cluster.brokers.values():
        broker.ranges[HEARTBEAT] = (0, 0)
    async with consumer_of(cluster) as consumer:
        with pytest.raises(UnsupportedVersion, match="does not serve group"):
            await consumer.next_batch(timeout_s=SOON_S)
    assert not group.heartbeats


async def test_a_commit_with_a_stale_epoch_is_stored_with_the_next(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
        group.codes[ApiKey.OFFSET_COMMIT] = [ErrorCode.STALE_MEMBER_EPOCH]
        group.bump()
        await consumer.commit({T[0]: 7})
        assert cluster.committed[T[0]][0] == 7
    assert group.commits[:2] == [(ANY, ErrorCode.STALE_MEMBER_EPOCH), (group.epoch - 1, 0)]


async def test_a_commit_of_who_is_unknown_fails(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    async with consumer_of(cluster) as consumer:
        await settled(consumer, *T)
        group.codes[ApiKey.OFFSET_COMMIT] = [ErrorCode.UNKNOWN_MEMBER_ID]
        with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms=\d+\): others"):
            await consumer.commit({T[0]: 7})


async def test_committed_offsets_are_asked_for_again_with_the_next_epoch(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    cluster.committed[T[0]] = (3, "", 0)
    cluster.logs[T[0]].add(b"0", b"1", b"2", b"3")
    group.codes[ApiKey.OFFSET_FETCH] = [ErrorCode.STALE_MEMBER_EPOCH]
    async with consumer_of(cluster) as consumer:
        batch = await consumer.next_batch(timeout_s=SOON_S)
        assert batch is not None
        assert batch.values() == [b"3"]
    asked = cluster.asked(ApiKey.OFFSET_FETCH)
    assert all(request.groups[0].member_epoch > 0 for request in asked)


async def test_an_application_that_never_polls_again_leaves_the_group_and_may_come_back(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    cluster.logs[T[0]].add(b"0", b"1")
    listener = Noting()
    config = replace(CONFIG, max_poll_interval_ms=50)
    async with consumer_of(cluster, config=config, listener=listener) as consumer:
        batch = await consumer.next_batch(1, timeout_s=SOON_S)
        assert batch is not None
        await until(lambda: any(request.member_epoch == -1 for request in group.said()))
        assert consumer.assignment == set()
        with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms=50"):
            await batch.commit()
        again = await consumer.next_batch(1, timeout_s=SOON_S)
        assert again is not None
        assert again.values() == [b"0"]
    assert [kind for kind, _ in listener.told][:3] == ["assigned", "lost", "assigned"]


async def test_a_static_member_says_that_it_will_be_back(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    config = replace(CONFIG, group_instance_id="me")
    async with consumer_of(cluster, config=config) as consumer:
        await settled(consumer, *T)
    last = group.said()[-1]
    assert (last.member_epoch, last.instance_id) == (-2, "me")


async def test_a_new_subscription_is_said_and_what_it_gives_up_is_revoked(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    cluster.topic("u", 1)
    listener = Noting()
    async with consumer_of(cluster, listener=listener) as consumer:
        await settled(consumer, *T)
        await consumer.subscribe("u")
        await settled(consumer, TopicPartition("u", 0))
        said = [request for request in group.said() if request.subscribed_topic_names is not None]
        assert [request.subscribed_topic_names for request in said] == [["t"], ["u"]]
    assert ("revoked", frozenset(T)) in listener.told


async def test_an_expression_is_matched_by_the_coordinator(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    cluster.topic("other", 1)
    async with consumer_of(cluster, pattern="t") as consumer:
        await settled(consumer, *T)
        assert group.said()[0].subscribed_topic_regex == "t"
        assert group.said()[0].subscribed_topic_names == []
        cluster.topic("tables", 1)
        group.bump()
        await settled(consumer, *T, TopicPartition("tables", 0))


async def test_a_partition_whose_topic_has_no_name_yet_comes_when_it_has(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    cluster.topic("u", 1)
    group.unknown_ids.add(group.id_of("u"))
    async with consumer_of(cluster, "t", "u") as consumer:
        await has(consumer, *T)
        asked = len(cluster.asked(ApiKey.METADATA))
        await until(lambda: len(cluster.asked(ApiKey.METADATA)) > asked + 2)
        assert consumer.assignment == set(T)
        assert not membership(consumer).is_settled.is_set()
        group.unknown_ids.clear()
        await settled(consumer, *T, TopicPartition("u", 0))


async def test_a_topic_made_anew_is_given_up_and_taken_afresh(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    listener = Noting()
    async with consumer_of(cluster, listener=listener) as consumer:
        await settled(consumer, *T)
        group.ids["t"] = b"another id of t!"
        group.bump()
        await until(lambda: len(listener.told) > 3)
        await settled(consumer, *T)
        owned = membership(consumer).owned
        assert owned == {(b"another id of t!", place.partition) for place in T}
    assert [kind for kind, places in listener.told if places == frozenset(T)][:3] == [
        "assigned",
        "revoked",
        "assigned",
    ]


async def test_a_listener_that_fails_ends_the_consumer(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    class Failing(RebalanceListener):
        async def on_assigned(self, topic_partitions: PartitionSet) -> None:
            raise ZeroDivisionError("of the application")

    async with consumer_of(cluster, listener=Failing()) as consumer:
        with pytest.raises(ZeroDivisionError):
            await consumer.next_batch(timeout_s=SOON_S)


async def test_a_listener_that_fails_for_a_moment_is_asked_again(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup
) -> None:
    failures = [KafkaError(ErrorCode.NETWORK_EXCEPTION)]

    class Failing(RebalanceListener):
        async def on_assigned(self, topic_partitions: PartitionSet) -> None:
            if failures:
                raise failures.pop()

    async with consumer_of(cluster, listener=Failing()) as consumer:
        await settled(consumer, *T)


class Claiming(RebalanceListener):
    """Says to all members together what one of them has."""

    def __init__(self, name: str, ownership: Ownership) -> None:
        self.name = name
        self.ownership = ownership

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        self.ownership.took(self.name, topic_partitions, asyncio.get_running_loop().time())

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        self.ownership.gave(self.name, topic_partitions, asyncio.get_running_loop().time())

    async def on_lost(self, topic_partitions: PartitionSet) -> None:
        self.ownership.lost(self.name, topic_partitions, asyncio.get_running_loop().time())


def has_heard_of(group: ScriptedConsumerGroup, heartbeats: int) -> bool:
    return len(group.heartbeats) > heartbeats


@pytest.mark.parametrize("seed", range(4))
async def test_members_come_and_go_on_a_bad_network_and_no_partition_has_two(
    cluster: ScriptedCluster, group: ScriptedConsumerGroup, seed: int
) -> None:
    random, ownership = Random(seed), Ownership()
    cluster.topic("u", 5)
    values = {b"%s/%d" % (p.topic.encode(), p.partition) for p in cluster.leaders}
    for place in cluster.leaders:
        cluster.logs[place].add(b"%s/%d" % (place.topic.encode(), place.partition))
    seen: set[bytes | None] = set()

    async def read(number: int, left: asyncio.Event) -> None:
        listener = Claiming(f"member {number}", ownership)
        async with consumer_of(cluster, "t", "u", listener=listener) as consumer:
            while not left.is_set():
                batch = await consumer.next_batch(2, timeout_s=0.01)
                if batch is not None:
                    seen.update(batch.values())

    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        leaving = [asyncio.Event() for _ in range(5)]
        for event in leaving:
            stack.callback(event.set)
        for number, event in enumerate(leaving):
            tasks.create_task(read(number, event))
            heartbeats = len(group.heartbeats) + random.randrange(2, 12)
            await until(partial(has_heard_of, group, heartbeats))
            group.lost_answers = random.randrange(3)
            if random.random() < 0.3:
                cluster.coordinator = 3 - cluster.coordinator
            if random.random() < 0.3 and number:
                leaving[number - 1].set()
            if random.random() < 0.3:
                group.codes[HEARTBEAT] = [random.choice(MOVED)]
        await until(lambda: seen == values)
        stay = sum(not event.is_set() for event in leaving)
        await until(lambda: len(group.members) == stay)
        await until(lambda: len(ownership.owners()) == len(values))
    assert ownership.doubles() == []
    assert not ownership.owners()
