"""Transactional producers that are gone in the middle, whatever they were doing.

A client that vanishes in any state leaves nothing open for longer than its time-out. Each step is
all that such a client did; its connections are closed. Source: docs/spec/transactions.md §3.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from barnabas.client import Admin, Cluster, GroupOffsets, NewTopic, TopicPartition
from barnabas.client.consumer.list_offsets import LATEST, offsets_for
from tests.harness.deployments import Deployment, OwnCluster
from tests.harness.raw_transactions import RawTransactionalProducer
from tests.harness.steady_settings import STEADY
from tests.harness.transactional_clusters import SETTINGS

WAIT_S: Final = 180.0
TIMEOUT_MS: Final = 5_000
"""Long enough for what a producer does before it vanishes, on a busy machine too."""
AT_REST: Final = {"Empty", "CompleteCommit", "CompleteAbort"}


def nothing_more(producer: RawTransactionalProducer, topic: str) -> None:
    """It has its producer id, and no transaction."""


def adds_partitions(producer: RawTransactionalProducer, topic: str) -> None:
    producer.add(topic, 0)


def sends_records(producer: RawTransactionalProducer, topic: str) -> None:
    producer.add(topic, 0)
    assert producer.send(topic, 0, b"left behind").error == 0


def adds_offsets(producer: RawTransactionalProducer, topic: str) -> None:
    producer.add_offsets(topic)


def sends_offsets(producer: RawTransactionalProducer, topic: str) -> None:
    producer.send_offsets(topic, topic, {0: 7})


def asks_for_a_commit(producer: RawTransactionalProducer, topic: str) -> None:
    sends_records(producer, topic)
    producer.ask_to_end_and_hang_up(is_commit=True)


def asks_for_an_abort(producer: RawTransactionalProducer, topic: str) -> None:
    sends_records(producer, topic)
    producer.ask_to_end_and_hang_up(is_commit=False)


def is_fenced(producer: RawTransactionalProducer, topic: str) -> None:
    """Its successor began, and is gone too."""
    sends_records(producer, topic)
    RawTransactionalProducer(producer.bootstrap, topic, TIMEOUT_MS).start()


STEPS: Final = (
    nothing_more,
    adds_partitions,
    sends_records,
    adds_offsets,
    sends_offsets,
    asks_for_a_commit,
    asks_for_an_abort,
    is_fenced,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Deployment]:
    running = OwnCluster(1, {**STEADY, **SETTINGS})
    yield running
    running.stop()


async def create(bootstrap: str, topic: str) -> None:
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=1)])


async def rest(bootstrap: str, name: str) -> None:
    """Until the id, the partition and the group of this name have no transaction any more."""
    place = TopicPartition(name, 0)
    async with Admin.of(bootstrap) as admin, asyncio.timeout(WAIT_S):
        while True:
            ends = [
                (await offsets_for(admin.cluster, {place: LATEST}, read_committed=level))[place]
                for level in (False, True)
            ]
            state = (await admin.describe_transaction(name)).state
            if ends[0] == ends[1] and state in AT_REST:
                break
            await asyncio.sleep(0.02)
    async with Cluster(bootstrap) as cluster, asyncio.timeout(WAIT_S):
        assert await GroupOffsets(cluster, name).fetch([place], require_stable=True) == {}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_producer_that_vanishes_leaves_nothing_open(
    cluster: Deployment, step: Callable[[RawTransactionalProducer, str], None]
) -> None:
    name = step.__name__
    asyncio.run(create(cluster.bootstrap, name))
    producer = RawTransactionalProducer(cluster.bootstrap, name, TIMEOUT_MS)
    producer.start()
    step(producer, name)
    asyncio.run(rest(cluster.bootstrap, name))
