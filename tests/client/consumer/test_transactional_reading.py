"""Consumers beside transactions: markers are passed, stable offsets awaited, offsets handed over.

Source: docs/spec/transactions.md §7 and §9; KIP-447.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.consumer.simple_consumer import SimpleConsumer
from barnabas.client.errors import CommitFailed
from barnabas.client.group_metadata import GroupMetadata
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from barnabas.protocol.settings import ConfigError
from tests.client.scripted_cluster import Log, ScriptedCluster, scripted_cluster
from tests.client.scripted_coordinator import ScriptedCoordinator
from tests.client.scripted_transactions import until

CONFIG = ConsumerConfig(
    heartbeat_interval_ms=20,
    session_timeout_ms=60_000,
    auto_offset_reset="earliest",
    auto_commit=False,
)
COMMITTED = FetchConfig(max_wait_ms=20, isolation_level="read_committed")
UNCOMMITTED = FetchConfig(max_wait_ms=20)
CLIENT = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=5)
PLACE = TopicPartition("t", 0)
SOON_S = 60.0
OPEN: dict[str, Any] = {
    "producer_id": 7,
    "producer_epoch": 0,
    "base_sequence": 0,
    "is_transactional": True,
}


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(1) as cluster:
        cluster.topic("t")
        yield cluster


@pytest.fixture
def group(cluster: ScriptedCluster) -> ScriptedCoordinator:
    return ScriptedCoordinator(cluster, [PLACE])


def end_transaction(log: Log, marker: Marker = Marker.COMMIT, leader_epoch: int = 0) -> None:
    log.append(
        build_batch(
            [encode_marker(marker, 0)],
            timestamp_ms=0,
            is_control=True,
            producer_id=7,
            producer_epoch=0,
            is_transactional=True,
        ),
        leader_epoch,
    )


def consumer_of(cluster: ScriptedCluster, **changes: Any) -> Consumer:
    options = {"config": CONFIG, "fetch": UNCOMMITTED, "client": CLIENT, **changes}
    return Consumer(cluster.bootstrap, "t", group="g", **options)


async def taken(consumer: Consumer, count: int, most: int = 10_000) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        batch = await consumer.next_batch(most, timeout_s=SOON_S)
        assert batch is not None
        found += batch.values()
    return found


# Positions behind markers.


async def test_offsets_are_committed_behind_a_marker_that_comes_later(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    """The stored offset and leader epoch are those after the control record."""
    log = cluster.logs[PLACE]
    log.add(b"0", **OPEN)
    async with consumer_of(cluster) as consumer:
        await taken(consumer, 1)
        await consumer.commit()
        assert cluster.committed[PLACE] == (1, "", 0)
        end_transaction(log, leader_epoch=3)
        await until(lambda: consumer.position(PLACE) == 2)
        await consumer.commit()
        assert cluster.committed[PLACE] == (2, "", 3)


async def test_an_automatic_commit_follows_a_marker_once(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    log = cluster.logs[PLACE]
    log.add(b"0", **OPEN)
    automatic = replace(CONFIG, auto_commit=True, auto_commit_interval_ms=5)
    async with consumer_of(cluster, config=automatic) as consumer:
        await taken(consumer, 1)
        assert await consumer.next_batch(timeout_s=0) is None
        await until(lambda: cluster.committed.get(PLACE) == (1, "", 0))
        end_transaction(log)
        await until(lambda: cluster.committed[PLACE] == (2, "", 0))
        beats = len(cluster.asked(ApiKey.HEARTBEAT))
        await until(lambda: len(cluster.asked(ApiKey.HEARTBEAT)) > beats + 2)
        stored = [
            request.topics[0].partitions[0].committed_offset
            for request in cluster.asked(ApiKey.OFFSET_COMMIT)
        ]
        assert stored == [1, 2]


async def test_nothing_that_waits_to_be_handed_out_is_passed(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    log = cluster.logs[PLACE]
    log.add(b"0", b"1", **OPEN)
    end_transaction(log)
    async with consumer_of(cluster) as consumer:
        assert await taken(consumer, 1, most=1) == [b"0"]
        await consumer.commit()
        assert cluster.committed[PLACE][0] == 1
        assert await taken(consumer, 1) == [b"1"]
        await consumer.commit()
        assert cluster.committed[PLACE][0] == 3
        consumer.seek(PLACE, 0)
        await taken(consumer, 1, most=1)
        await consumer.commit()
        assert cluster.committed[PLACE][0] == 1


async def test_aborted_records_are_passed_as_markers_are(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    log = cluster.logs[PLACE]
    log.add(b"plain")
    async with consumer_of(cluster, fetch=COMMITTED) as consumer:
        await taken(consumer, 1)
        log.aborted = [AbortedTransaction(producer_id=7, first_offset=1)]
        log.add(b"gone", **OPEN)
        end_transaction(log, Marker.ABORT)
        await until(lambda: consumer.position(PLACE) == 3)
        _, offsets = await consumer.offsets_for_transaction()
        assert offsets[PLACE].offset == 3


# Stable offsets.


@pytest.mark.parametrize(("fetch", "is_stable"), [(COMMITTED, True), (UNCOMMITTED, False)])
async def test_committed_offsets_are_stable_for_readers_of_committed_records(
    cluster: ScriptedCluster, fetch: FetchConfig, is_stable: bool
) -> None:
    cluster.committed[PLACE] = (4, "", -1)
    cluster.coordinator_codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 3
    async with Consumer(
        cluster.bootstrap, group="g", config=CONFIG, fetch=fetch, client=CLIENT
    ) as consumer:
        assert (await consumer.committed([PLACE]))[PLACE].offset == 4
    asked = cluster.asked(ApiKey.OFFSET_FETCH)
    assert [request.require_stable for request in asked] == [is_stable] * 4


async def test_an_assigned_partition_begins_at_a_stable_offset(cluster: ScriptedCluster) -> None:
    """Whoever began before an offset that is about to be committed would read records twice."""
    cluster.committed[PLACE] = (1, "", -1)
    cluster.coordinator_codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    cluster.logs[PLACE].add(b"0", b"1")
    async with Consumer(
        cluster.bootstrap, group="g", config=CONFIG, fetch=UNCOMMITTED, client=CLIENT
    ) as consumer:
        await consumer.assign([PLACE])
        assert await taken(consumer, 1) == [b"1"]
        assert await consumer.offsets_for_transaction() == (
            GroupMetadata("g"),
            {PLACE: (2, "", 0)},
        )
    assert all(request.require_stable for request in cluster.asked(ApiKey.OFFSET_FETCH))


# Offsets for a transaction.


async def test_a_transaction_gets_the_member_and_what_was_handed_out(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    cluster.logs[PLACE].add(b"0", b"1", b"2")
    static = replace(CONFIG, group_instance_id="instance")
    async with consumer_of(cluster, config=static) as consumer:
        await taken(consumer, 2, most=2)
        member, offsets = await consumer.offsets_for_transaction()
        assert member == GroupMetadata("g", 1, "id-1", "instance")
        assert offsets == {PLACE: (2, "", 0)}
    assert cluster.committed == {}


async def test_automatic_commits_are_refused_beside_transactions(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    async with consumer_of(cluster, config=replace(CONFIG, auto_commit=True)) as consumer:
        with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
            await consumer.offsets_for_transaction()


@pytest.mark.parametrize("is_sent", [False, True])
async def test_records_of_a_partition_that_was_revoked_are_not_committed_by_a_transaction(
    cluster: ScriptedCluster, group: ScriptedCoordinator, is_sent: bool
) -> None:
    """Another member, or we ourselves, read again what no transaction has stored."""
    cluster.logs[PLACE].add(b"0", *([] if is_sent else [b"1", b"2"]))
    async with consumer_of(cluster) as consumer:
        await taken(consumer, 1, most=1)
        if is_sent:
            _, offsets = await consumer.offsets_for_transaction()
            consumer.offsets_sent(offsets)
            cluster.committed[PLACE] = (1, "", 0)
        group.codes[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
        await until(lambda: not group.codes[ApiKey.HEARTBEAT])
        if is_sent:  # what is there before the rebalance could be taken before it
            while group.generation < 2:
                assert await consumer.next_batch(timeout_s=0.01) is None
            cluster.logs[PLACE].add(b"1", b"2")
        again = await taken(consumer, 2 if is_sent else 3)
        assert group.generation == 2
        if is_sent:
            assert again == [b"1", b"2"]
        else:
            # What had arrived may be handed out before the partition is revoked, and is read again.
            assert again in ([b"0", b"1", b"2"], [b"1", b"2", b"0", b"1", b"2"])
            with pytest.raises(CommitFailed):
                await consumer.offsets_for_transaction()
            await consumer.seek_to_committed()
            assert await taken(consumer, 3) == again
        member, offsets = await consumer.offsets_for_transaction()
        assert member.generation == 2
        assert offsets[PLACE].offset == 3


async def test_everything_is_read_again_from_what_is_committed(
    cluster: ScriptedCluster, group: ScriptedCoordinator
) -> None:
    cluster.logs[PLACE].add(*(b"%d" % number for number in range(6)))
    async with consumer_of(cluster) as consumer:
        await taken(consumer, 4, most=4)
        await consumer.seek_to_committed()
        assert await taken(consumer, 2, most=2) == [b"0", b"1"]
        cluster.committed[PLACE] = (5, "", -1)
        cluster.coordinator_codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT]
        await consumer.seek_to_committed()
        assert await taken(consumer, 1) == [b"5"]
        assert (await consumer.offsets_for_transaction())[1][PLACE].offset == 6


# The simple consumer.


async def test_a_simple_consumer_of_committed_records(cluster: ScriptedCluster) -> None:
    log = cluster.logs[PLACE]
    log.add(b"gone", **OPEN)
    end_transaction(log, Marker.ABORT)
    log.add(b"kept", **{**OPEN, "base_sequence": 1})
    end_transaction(log)
    log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    port = cluster.brokers[1].port
    for level, isolation, values in (
        ("read_committed", 1, [b"kept"]),
        ("read_uncommitted", 0, [b"gone", b"kept"]),
    ):
        async with SimpleConsumer("127.0.0.1", port, isolation_level=level) as consumer:
            chunk = await consumer.fetch("t", 0, 0)
            assert (chunk.values(), chunk.next_offset) == (values, 4)
            await consumer.earliest_or_latest_offset("t", 0, -1)
        for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            assert cluster.asked(key)[-1].isolation_level == isolation
    with pytest.raises(AssertionError):
        SimpleConsumer("127.0.0.1", port, isolation_level="read-committed")


async def test_an_open_transaction_is_no_reason_to_ask_for_more(cluster: ScriptedCluster) -> None:
    """Nothing is given between last stable offset and high watermark, however much is asked."""
    cluster.logs[PLACE].add(b"open", **OPEN)
    serve = cluster.brokers[1].answers[ApiKey.FETCH]

    async def stable_only(request: Any, version: int) -> Any:
        answer = serve(request, version)
        response = await answer if asyncio.iscoroutine(answer) else answer
        for topic in response.responses:
            for partition in topic.partitions:
                partition.last_stable_offset, partition.records = 0, b""
        return response

    cluster.brokers[1].answers = {**cluster.brokers[1].answers, ApiKey.FETCH: stable_only}
    port = cluster.brokers[1].port
    async with (
        SimpleConsumer("127.0.0.1", port, isolation_level="read_committed") as consumer,
        asyncio.timeout(SOON_S),
    ):
        chunk = await consumer.fetch("t", 0, 0)
        assert (len(chunk), chunk.next_offset, chunk.high_watermark) == (0, 0, 1)
    assert len(cluster.asked(ApiKey.FETCH)) == 1
