"""Each code of a coordinator leads to what docs/spec/coordinator.md §1.9 asks, within a second.

docs/spec/reliability.md §2 failure 7: clients that never look for their coordinator again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.consumer.group_offsets import GroupOffsets
from barnabas.client.consumer.rebalance_listener import PartitionSet, RebalanceListener
from barnabas.client.errors import CommitFailed, KafkaError
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.client.scripted_coordinator import ScriptedCoordinator

SESSION_MS = 60_000
CONFIG = ConsumerConfig(
    heartbeat_interval_ms=20, session_timeout_ms=SESSION_MS, auto_offset_reset="earliest"
)
QUICK = FetchConfig(max_wait_ms=20)
CLIENT = ClientConfig()
"""The defaults: what is shown must hold for everybody."""
TOPIC_PARTITION = TopicPartition("t", 0)
ACTION_S = 15.0
"""Asserted on intervals between requests: far above the client's own waits, so that a busy machine
is no failure, and far below a session, which is the next thing that a client might wait for."""
SOON_S = 90.0
MOVED = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
FATAL = [
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
]


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(2) as cluster:
        cluster.topic("t")
        yield cluster


@pytest.fixture
def group(cluster: ScriptedCluster) -> ScriptedCoordinator:
    return ScriptedCoordinator(cluster, [TOPIC_PARTITION])


def consumer_of(cluster: ScriptedCluster, **changes: Any) -> Consumer:
    options = {"config": CONFIG, "fetch": QUICK, "client": CLIENT, **changes}
    return Consumer(cluster.bootstrap, "t", group="g", **options)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def is_asked_to_give_way(consumer: Consumer) -> bool:
    """The member has heard of a rebalance, and waits for the application to ask for more."""
    return consumer._member is not None and consumer._member.is_waiting


async def joined(consumer: Consumer, group: ScriptedCoordinator, generation: int = 1) -> None:
    await until(lambda: group.generation >= generation and consumer.assignment)


def follows(
    group: ScriptedCoordinator, code: int, first: ApiKey, then: ApiKey
) -> tuple[float, int]:
    """How long after ``first`` was answered with ``code`` came ``then``, and at which broker."""
    for index, (at, _, key, answered) in enumerate(group.times):
        if key == first and answered == code:
            later = [time for time in group.times[index + 1 :] if time[2] == then]
            return later[0][0] - at, later[0][1]
    raise AssertionError(f"{first.name} was not answered with {code}: {group.times}")


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.OFFSET_FETCH])
async def test_a_coordinator_that_loads_is_asked_again(
    cluster: ScriptedCluster, group: ScriptedCoordinator, key: ApiKey
) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    group.codes[key] = [loading]
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
    wait_s, broker = follows(group, loading, key, key)
    assert wait_s < ACTION_S
    assert broker == cluster.coordinator


@pytest.mark.parametrize("code", MOVED)
@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_FETCH])
async def test_a_coordinator_that_moved_is_looked_for(
    cluster: ScriptedCluster, group: ScriptedCoordinator, key: ApiKey, code: ErrorCode
) -> None:
    group.codes[key] = [code]
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
    assert follows(group, code, key, ApiKey.FIND_COORDINATOR)[0] < ACTION_S
    assert follows(group, code, key, key)[0] < ACTION_S


@pytest.mark.parametrize("code", MOVED)
async def test_a_heartbeat_finds_the_new_coordinator_and_stays_a_member(
    cluster: ScriptedCluster, group: ScriptedCoordinator, code: ErrorCode
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        cluster.coordinator = 2
        await until(lambda: any(node == 2 for _, node, _ in group.asked(ApiKey.HEARTBEAT)))
        assert group.generation == 1
    moved = ErrorCode.NOT_COORDINATOR
    assert follows(group, moved, ApiKey.HEARTBEAT, ApiKey.HEARTBEAT)[0] < ACTION_S


async def test_a_lost_connection_to_the_coordinator_is_replaced(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        for writer in cluster.brokers[1].writers:
            writer.close()
        before = len(group.asked(ApiKey.HEARTBEAT))
        await until(lambda: len(group.asked(ApiKey.HEARTBEAT)) > before)
        assert group.generation == 1


async def test_a_rebalance_is_joined_with_the_same_member_id(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
        await joined(consumer, group, generation=2)
    wait_s, _ = follows(group, ErrorCode.REBALANCE_IN_PROGRESS, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP)
    assert wait_s < ACTION_S
    assert [request.member_id for request in cluster.asked(ApiKey.JOIN_GROUP)] == [
        "",
        "id-1",
        "id-1",
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.ILLEGAL_GENERATION, ["", "id-1", "id-1"]),
        (ErrorCode.UNKNOWN_MEMBER_ID, ["", "id-1", "", "id-2"]),
    ],
)
@pytest.mark.parametrize("key", [ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP])
async def test_a_member_that_is_unknown_joins_anew_and_one_of_an_old_generation_again(
    cluster: ScriptedCluster,
    group: ScriptedCoordinator,
    key: ApiKey,
    code: ErrorCode,
    expected: list[str],
) -> None:
    group.codes[key] = [code]
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group, generation=2)
    assert follows(group, code, key, ApiKey.JOIN_GROUP)[0] < ACTION_S
    assert [request.member_id for request in cluster.asked(ApiKey.JOIN_GROUP)] == expected


async def test_a_join_that_is_told_its_member_is_unknown_joins_anew(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    group.codes[ApiKey.JOIN_GROUP] = [0, ErrorCode.UNKNOWN_MEMBER_ID]
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
    ids = [request.member_id for request in cluster.asked(ApiKey.JOIN_GROUP)]
    assert ids == ["", "id-1", "", "id-2"]


async def test_a_member_id_handed_out_is_used_at_once(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
    wait_s, _ = follows(
        group, 0, ApiKey.JOIN_GROUP, ApiKey.JOIN_GROUP
    )  # the scripted coordinator hands out an id for any join without one
    assert wait_s < ACTION_S


@pytest.mark.parametrize("code", FATAL)
async def test_an_error_that_no_retry_helps_against_is_raised(
    cluster: ScriptedCluster, group: ScriptedCoordinator, code: ErrorCode
) -> None:
    group.codes[ApiKey.JOIN_GROUP] = [code]
    async with consumer_of(cluster) as consumer:
        with pytest.raises(KafkaError) as failure:
            await consumer.next_batch(timeout_s=SOON_S)
    assert failure.value.code is code
    assert not failure.value.retriable


async def test_a_fenced_member_is_told_by_its_heartbeat(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.HEARTBEAT] = [ErrorCode.FENCED_INSTANCE_ID]
        with pytest.raises(KafkaError) as failure:
            await consumer.next_batch(timeout_s=SOON_S)
    assert failure.value.code is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    "code",
    [
        *MOVED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
async def test_a_commit_is_tried_again_until_it_is_stored(
    cluster: ScriptedCluster, group: ScriptedCoordinator, code: ErrorCode
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.OFFSET_COMMIT] = [code]
        await consumer.commit({TOPIC_PARTITION: 7})
    assert cluster.committed[TOPIC_PARTITION][0] == 7
    assert follows(group, code, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT)[0] < ACTION_S
    if code in (*MOVED, ErrorCode.REQUEST_TIMED_OUT):
        wait_s, _ = follows(group, code, ApiKey.OFFSET_COMMIT, ApiKey.FIND_COORDINATOR)
        assert wait_s < ACTION_S


@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
)
async def test_a_commit_that_can_never_be_stored_is_not_tried_again(
    cluster: ScriptedCluster, group: ScriptedCoordinator, code: ErrorCode
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.OFFSET_COMMIT] = [code]
        with pytest.raises(KafkaError) as failure:
            await consumer.commit({TOPIC_PARTITION: CommittedOffset(7, "x" * 5_000)})
        assert failure.value.code is code
    assert len(group.asked(ApiKey.OFFSET_COMMIT)) == 1


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_commit_of_a_member_left_behind_fails_and_the_member_joins_again(
    cluster: ScriptedCluster, group: ScriptedCoordinator, code: ErrorCode
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.OFFSET_COMMIT] = [code]
        with pytest.raises(CommitFailed, match="id-1 of generation 1") as failure:
            await consumer.commit({TOPIC_PARTITION: 7})
        assert (failure.value.code, failure.value.generation) == (code, 1)
        await joined(consumer, group, generation=2)
    assert follows(group, code, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP)[0] < ACTION_S


async def test_a_commit_during_a_rebalance_is_stored_after_it(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.OFFSET_COMMIT] = [ErrorCode.REBALANCE_IN_PROGRESS]
        await consumer.commit({TOPIC_PARTITION: 7})
        assert group.generation == 2
    assert cluster.committed[TOPIC_PARTITION][0] == 7


async def test_offsets_that_a_transaction_may_change_are_asked_for_again(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    group.codes[ApiKey.OFFSET_FETCH] = [unstable]
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
    assert follows(group, unstable, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FETCH)[0] < ACTION_S
    assert all(request.require_stable for request in cluster.asked(ApiKey.OFFSET_FETCH))


async def test_a_member_leaves_when_it_is_closed_and_a_static_one_does_not(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster) as consumer:
        await joined(consumer, group)
    assert len(group.asked(ApiKey.LEAVE_GROUP)) == 1
    static = ConsumerConfig(
        group_instance_id="me", heartbeat_interval_ms=20, session_timeout_ms=SESSION_MS
    )
    async with consumer_of(cluster, config=static) as consumer:
        await joined(consumer, group, generation=2)
    assert len(group.asked(ApiKey.LEAVE_GROUP)) == 1


async def test_what_is_in_hand_is_not_committed_by_itself(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    config = ConsumerConfig(
        heartbeat_interval_ms=20,
        session_timeout_ms=SESSION_MS,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=10,
    )
    cluster.logs[TOPIC_PARTITION].add(b"0", b"1", b"2")
    async with consumer_of(cluster, config=config) as consumer:
        batch = await consumer.next_batch(2, timeout_s=SOON_S)
        assert batch is not None
        beats = len(group.asked(ApiKey.HEARTBEAT))
        await until(lambda: len(group.asked(ApiKey.HEARTBEAT)) > beats + 3)
        assert TOPIC_PARTITION not in cluster.committed
        await consumer.next_batch(2, timeout_s=SOON_S)
        await until(lambda: TOPIC_PARTITION in cluster.committed)
        assert cluster.committed[TOPIC_PARTITION][0] == 2
    assert cluster.committed[TOPIC_PARTITION] == (3, "", 0)


async def test_a_rebalance_waits_for_what_is_in_hand(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    cluster.logs[TOPIC_PARTITION].add(b"0", b"1", b"2")
    async with consumer_of(cluster) as consumer:
        batch = await consumer.next_batch(2, timeout_s=SOON_S)
        assert batch is not None
        group.codes[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS] * 3
        await until(lambda: not group.codes[ApiKey.HEARTBEAT])
        assert group.generation == 1
        await batch.commit()
        rest = await consumer.next_batch(timeout_s=SOON_S)
        assert rest is not None
        assert (rest.values(), group.generation) == ([b"2"], 2)


class Slow(RebalanceListener):
    """Gives partitions up when the coordinator has said often enough that it should."""

    def __init__(self, is_time: Callable[[], bool]) -> None:
        self._is_time = is_time

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        await until(self._is_time)


async def test_heartbeats_that_a_slow_listener_lets_pass_ask_for_one_rebalance_only(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    slow = Slow(lambda: not group.codes[ApiKey.HEARTBEAT])
    async with consumer_of(cluster, listener=slow) as consumer:
        await joined(consumer, group)
        group.codes[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS] * 5
        await joined(consumer, group, generation=2)
        beats = len(group.asked(ApiKey.HEARTBEAT))
        await until(lambda: len(group.asked(ApiKey.HEARTBEAT)) > beats + 5)
        assert group.generation == 2


async def test_records_one_by_one_make_way_for_a_rebalance(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    cluster.logs[TOPIC_PARTITION].add(*(b"%d" % number for number in range(100)))
    seen = []
    async with consumer_of(cluster) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 10:
                group.codes[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
                await until(lambda: is_asked_to_give_way(consumer))
            if len(seen) == 100:
                break
        assert group.generation == 2
    assert seen == list(range(100))


IMPATIENT = ConsumerConfig(
    heartbeat_interval_ms=20,
    session_timeout_ms=SESSION_MS,
    max_poll_interval_ms=50,
    auto_offset_reset="earliest",
)


async def test_who_leaves_the_group_gives_out_nothing_that_others_may_read_by_then(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    cluster.logs[TOPIC_PARTITION].add(b"0", b"1")
    open_then: list[set[TopicPartition]] = []
    async with consumer_of(cluster, config=IMPATIENT) as consumer:
        member, coordinator = consumer._member, cluster.brokers[cluster.coordinator]
        assert member is not None
        leave = coordinator.answers[ApiKey.LEAVE_GROUP]

        def noted(request: Any, version: int) -> Any:
            open_then.append(set(member.open))
            return leave(request, version)

        coordinator.answers = {**coordinator.answers, ApiKey.LEAVE_GROUP: noted}
        assert await consumer.next_batch(1, timeout_s=SOON_S) is not None
        await until(lambda: open_then)
    assert open_then[0] == set()


async def test_an_application_that_never_polls_again_leaves_the_group(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    cluster.logs[TOPIC_PARTITION].add(b"0", b"1")
    async with consumer_of(cluster, config=IMPATIENT) as consumer:
        batch = await consumer.next_batch(1, timeout_s=SOON_S)
        assert batch is not None
        await until(lambda: group.asked(ApiKey.LEAVE_GROUP))
        with pytest.raises(CommitFailed, match=r"id-1 of .*max\.poll\.interval\.ms=50"):
            await batch.commit()
        again = await consumer.next_batch(1, timeout_s=SOON_S)
        assert again is not None
        assert again.values() == [b"0"]


async def test_a_cooperative_member_that_could_not_read_its_offsets_takes_its_partitions_later(
    cluster: ScriptedCluster, group: ScriptedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, failures = GroupOffsets.fetch, [KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]

    async def failing_once(self: GroupOffsets, *given: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await fetch(self, *given, **options)

    monkeypatch.setattr(GroupOffsets, "fetch", failing_once)
    config = replace(CONFIG, assignors=("cooperative-sticky",))
    async with consumer_of(cluster, config=config) as consumer:
        await joined(consumer, group, generation=2)
        await until(lambda: consumer._member is not None and consumer._member.open)
        assert consumer.assignment == {TOPIC_PARTITION}


class FailingOnce(RebalanceListener):
    """Cannot take its partitions at first, as one that asks a broker for where to begin."""

    def __init__(self) -> None:
        self.told: list[tuple[str, PartitionSet]] = []

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        self.told.append(("assigned", topic_partitions))
        if len(self.told) == 1:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        self.told.append(("revoked", topic_partitions))


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
async def test_partitions_that_a_listener_could_not_take_are_offered_to_it_again(
    cluster: ScriptedCluster, group: ScriptedCoordinator, assignor: str
) -> None:
    listener, config = FailingOnce(), replace(CONFIG, assignors=(assignor,))
    async with consumer_of(cluster, config=config, listener=listener) as consumer:
        await joined(consumer, group, generation=2)
        await until(lambda: consumer._member is not None and consumer._member.open)
        assert consumer.assignment == {TOPIC_PARTITION}
        assert listener.told == [("assigned", frozenset({TOPIC_PARTITION}))] * 2


async def test_only_who_assigns_now_watches_how_many_partitions_there_are(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    config = replace(CONFIG, metadata_max_age_ms=10)
    async with consumer_of(cluster, config=config) as consumer:
        await joined(consumer, group)
        group.leader = "another"
        group.codes[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
        await joined(consumer, group, generation=2)
        cluster.topic("t", 2)
        before = len(cluster.asked(ApiKey.METADATA))
        await until(lambda: len(cluster.asked(ApiKey.METADATA)) > before + 10)
        assert group.generation == 2
