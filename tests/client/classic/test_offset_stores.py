"""Offsets in ZooKeeper, at the offset manager and in both, as coordinators move and load.

Source: docs/spec/coordinator.md §1.9, §6.7 and §6.9, §6.12 check C6.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from barnabas.client.classic.offset_manager import OffsetManager
from barnabas.client.classic.offset_stores import (
    DualCommitStore,
    KafkaOffsetStore,
    ZooKeeperOffsetStore,
)
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import KafkaError
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import find_coordinator, offset_commit, offset_fetch
from tests.client.scripted_broker import Answer, ScriptedBroker, scripted_broker
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=2)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class OffsetManagers:
    """Two scripted brokers, one of which keeps the group; a test says what they answer."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = brokers
        self.coordinator = 0
        self.codes: list[int] = []
        """What the next requests get, one each; then 0."""
        self.refused: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.asked: list[int] = []
        for number, broker in enumerate(brokers):
            broker.answers = {
                ApiKey.FIND_COORDINATOR: self.find,
                ApiKey.OFFSET_COMMIT: self._by(self.commit, number),
                ApiKey.OFFSET_FETCH: self._by(self.fetch, number),
            }

    async def addresses(self) -> list[str]:
        return [broker.address for broker in self.brokers]

    def find(self, request: Any, version: int) -> Any:
        port = self.brokers[self.coordinator].port
        return find_coordinator.FindCoordinatorResponse(
            node_id=self.coordinator, host="127.0.0.1", port=port
        )

    def commit(self, request: Any, code: int) -> Any:
        results = []
        for topic in request.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                found = code or self.refused.get(topic_partition, 0)
                if not found:
                    self.offsets[topic_partition] = partition.committed_offset
                results.append(
                    offset_commit.PartitionResult(
                        partition_index=partition.partition_index, error_code=found
                    )
                )
        return offset_commit.OffsetCommitResponse(
            topics=[offset_commit.TopicResult(name="t", partitions=results)]
        )

    def fetch(self, request: Any, code: int) -> Any:
        if code:
            return offset_fetch.OffsetFetchResponse(topics=[], error_code=code)
        found = [
            offset_fetch.PartitionResult(
                partition_index=index,
                committed_offset=self.offsets.get(TopicPartition("t", index), -1),
                metadata="",
                error_code=0,
            )
            for topic in request.topics
            for index in topic.partition_indexes
        ]
        return offset_fetch.OffsetFetchResponse(
            topics=[offset_fetch.TopicResult(name="t", partitions=found)], error_code=0
        )

    def _by(self, answer: Callable[[Any, int], Any], number: int) -> Answer:
        def reply(request: Any, version: int) -> Any:
            self.asked.append(number)
            if number != self.coordinator:
                return answer(request, ErrorCode.NOT_COORDINATOR)
            return answer(request, self.codes.pop(0) if self.codes else 0)

        return reply


@pytest.fixture
async def managers() -> AsyncIterator[OffsetManagers]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(scripted_broker({})) for _ in range(2)]
        yield OffsetManagers(brokers)


@pytest.fixture
async def kafka(managers: OffsetManagers) -> AsyncIterator[KafkaOffsetStore]:
    store = KafkaOffsetStore(OffsetManager("g", managers.addresses, CONFIG))
    yield store
    await store.close()


@pytest.fixture
async def session() -> SimZooKeeper:
    return SimEnsemble(asyncio.get_running_loop()).connect()


async def text(session: SimZooKeeper, topic_partition: TopicPartition) -> bytes | None:
    path = f"/consumers/g/offsets/{topic_partition.topic}/{topic_partition.partition}"
    return (await session.get(path))[0] if await session.exists(path) else None


async def test_an_offset_in_zookeeper_is_decimal_text(session: SimZooKeeper) -> None:
    store = ZooKeeperOffsetStore(session, "g")
    assert await store.commit({A: 17, B: 2**40}) == {}
    assert await text(session, A) == b"17"
    assert await ZooKeeperOffsetStore(session, "g").fetch([A, B]) == {A: 17, B: 2**40}


async def test_an_offset_that_stands_there_already_is_not_written_again(
    session: SimZooKeeper,
) -> None:
    store = ZooKeeperOffsetStore(session, "g")
    for offsets in ({A: 17, B: 1}, {A: 17, B: 2}, {A: 17, B: 2}):
        await store.commit(offsets)
    assert store.writes == 3


async def test_a_text_that_is_no_number_is_no_offset(session: SimZooKeeper) -> None:
    await session.create("/consumers/g/offsets/t/0", b"many", parents=True)
    store = ZooKeeperOffsetStore(session, "g")
    assert await store.fetch([A]) == {}
    assert await store.commit({A: 3}) == {}
    assert await text(session, A) == b"3"


async def test_a_write_whose_answer_was_lost_is_reported_and_made_again(
    session: SimZooKeeper,
) -> None:
    store = ZooKeeperOffsetStore(session, "g")
    await store.commit({A: 1})
    session.lose_next_answer()
    with pytest.raises(Exception, match="answer lost"):
        await store.commit({A: 2})
    await store.commit({A: 2})
    assert await text(session, A) == b"2"


@pytest.mark.parametrize("code", [14, 15, 16])
async def test_a_commit_is_made_again_after_each_code_that_passes(
    kafka: KafkaOffsetStore, managers: OffsetManagers, code: int
) -> None:
    managers.codes = [code, code]
    assert await kafka.commit({A: 5}, retry_for_ms=60_000) == {}
    assert managers.offsets == {A: 5}
    assert len(managers.asked) == 3


async def test_a_commit_by_the_timer_is_tried_once(
    kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    managers.codes = [14]
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await kafka.commit({A: 5})
    assert len(managers.asked) == 1


async def test_the_offset_manager_is_found_again_when_it_moves(
    kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    await kafka.commit({A: 5}, retry_for_ms=60_000)
    managers.coordinator = 1
    assert await kafka.fetch([A, B]) == {A: 5}
    await kafka.commit({A: 6}, retry_for_ms=60_000)
    assert managers.asked == [0, 0, 1, 1]


async def test_reading_waits_until_the_offset_manager_has_loaded(
    kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    managers.offsets = {A: 9}
    managers.codes = [14, 16, 15, 14]
    assert await kafka.fetch([A]) == {A: 9}


async def test_an_offset_that_is_refused_for_itself_stops_no_other(
    kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    managers.refused = {A: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    failures = await kafka.commit({A: 1, B: 2}, retry_for_ms=60_000)
    assert failures == {A: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert managers.offsets == {B: 2}
    assert len(managers.asked) == 1, "no code that patience cures"


async def test_a_channel_outlives_all_the_brokers_it_began_with(
    kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    await kafka.commit({A: 1}, retry_for_ms=60_000)
    async with scripted_broker({}) as other:
        for broker in managers.brokers:
            for writer in broker.writers:
                writer.close()
        managers.__init__([other])  # type: ignore[misc]
        assert await kafka.commit({A: 2}, retry_for_ms=60_000) == {}
        await kafka.close()
    assert managers.offsets == {A: 2}


async def test_a_broker_that_is_silent_does_not_keep_us_from_the_others(
    managers: OffsetManagers,
) -> None:
    managers.coordinator = 1
    silent = managers.brokers[0]
    silent.answers = dict.fromkeys(silent.answers, lambda request, version: None)
    config = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=2, request_timeout_ms=500)
    store = KafkaOffsetStore(OffsetManager("g", managers.addresses, config, Random(1)))
    for offset in range(5):
        assert await store.commit({A: offset}, retry_for_ms=120_000) == {}
        await store.close()  # and look for a broker anew
    assert managers.offsets == {A: 4}
    assert silent.connections


async def test_reading_both_takes_the_larger_and_levels_them(
    session: SimZooKeeper, kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    zookeeper = ZooKeeperOffsetStore(session, "g")
    await zookeeper.commit({A: 100, B: 7})
    managers.offsets = {A: 90, B: 70}
    both = DualCommitStore(kafka, zookeeper)
    assert await both.fetch([A, B]) == {A: 100, B: 70}
    assert managers.offsets == {A: 100, B: 70}
    assert [await text(session, topic_partition) for topic_partition in (A, B)] == [b"100", b"70"]
    await both.commit({A: 101, B: 71})
    assert managers.offsets == {A: 101, B: 71}
    assert await text(session, A) == b"101"


async def test_what_the_first_store_refuses_is_not_written_to_the_second(
    session: SimZooKeeper, kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    managers.refused = {A: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    both = DualCommitStore(kafka, ZooKeeperOffsetStore(session, "g"))
    failures = await both.commit({A: 5, B: 6})
    assert failures == {A: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert [await text(session, topic_partition) for topic_partition in (A, B)] == [None, b"6"]


async def test_a_commit_that_found_no_offset_manager_writes_nothing(
    session: SimZooKeeper, kafka: KafkaOffsetStore, managers: OffsetManagers
) -> None:
    managers.codes = [15]
    both = DualCommitStore(kafka, ZooKeeperOffsetStore(session, "g"))
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        await both.commit({A: 5})
    assert await text(session, A) is None
