"""A leader that may have been replaced does not make a consumer begin anew."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.fetch_sessions import FetchSessionCache
from barnabas.broker.handlers.fetch_topic_ids import FetchTopicIds
from barnabas.broker.handlers.leader_hints import LeaderHints
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.stale_leaders import StaleLeaders
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, offset_for_leader_epoch
from tests.handlers.peer import SomePeer, answered, call
from tests.replication.logs import a_batch, lead, obey, roles, state

EPOCH = 4
END = 2
GONE = ErrorCode.OFFSET_OUT_OF_RANGE
ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
ABOVE_THE_END = (END + 1, -1)
LATER = EPOCH + 9
BROKER_EPOCH = 100
OF_A_LATER_EPOCH = (1, LATER)


class Lease:
    is_held = True

    def holds(self) -> bool:
        return self.is_held


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
async def handlers(
    replicas: ReplicaManager, lease: Lease
) -> tuple[FetchHandler, OffsetForLeaderEpochHandler]:
    lead(replicas, "t", epoch=EPOCH, replicas=[1, 2, 3], isr=[1, 2])
    replicas.led("t", 0).append(a_batch(END), acks=1, is_client=True)
    loop, cache = asyncio.get_running_loop(), MetadataCache()
    stale_leaders = StaleLeaders(lease.holds)
    reading = FetchHandler(
        replicas,
        loop=loop,
        bytes_max=1 << 20,
        room=lambda: 1 << 20,
        sessions=FetchSessionCache(10, now=loop.time, rng=random.Random(1)),
        topic_ids=FetchTopicIds(cache, LeaderHints(cache, replicas)),
        stale_leaders=stale_leaders,
    )
    return reading, OffsetForLeaderEpochHandler(replicas, stale_leaders)


def fetched(handler: FetchHandler, position: tuple[int, int], replica: int = -1) -> Any:
    """What a reader at ``position``, offset and epoch of the record before it, is told."""
    partition = fetch.Partition(
        partition=0,
        fetch_offset=position[0],
        last_fetched_epoch=position[1],
        partition_max_bytes=1 << 20,
    )
    request = fetch.FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=1,
        topics=[fetch.Topic(topic="t", partitions=[partition])],
    )
    peer = SomePeer(is_internal=replica >= 0)
    [topic] = answered(handler.fetch(call(request, 12, peer=peer))).responses
    [result] = topic.partitions
    return result


def looked_up(
    handler: OffsetForLeaderEpochHandler, epoch: int, *, is_internal: bool = False
) -> Any:
    partition = offset_for_leader_epoch.Partition(partition=0, leader_epoch=epoch)
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[offset_for_leader_epoch.Topic(topic="t", partitions=[partition])]
    )
    asked = call(request, 4, peer=SomePeer(is_internal=is_internal))
    [topic] = answered(handler.offset_for_leader_epoch(asked)).topics
    [result] = topic.partitions
    return result


@pytest.mark.parametrize("position", [ABOVE_THE_END, OF_A_LATER_EPOCH])
async def test_a_consumer_is_sent_on_while_the_lease_is_over(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler],
    lease: Lease,
    position: tuple[int, int],
) -> None:
    reading, _ = handlers
    assert fetched(reading, position).error_code == GONE
    lease.is_held = False
    assert fetched(reading, position).error_code == ELSEWHERE
    lease.is_held = True
    assert fetched(reading, position).error_code == GONE


async def test_a_consumer_is_sent_on_until_the_controller_has_spoken_in_a_new_session(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler], replicas: ReplicaManager
) -> None:
    reading, epochs = handlers
    replicas.forget_former_session(BROKER_EPOCH)
    assert fetched(reading, ABOVE_THE_END).error_code == ELSEWHERE
    assert looked_up(epochs, LATER).error_code == ELSEWHERE
    lead(replicas, "t", epoch=EPOCH + 1, partition_epoch=1, replicas=[1, 2, 3], isr=[1, 2])
    assert fetched(reading, ABOVE_THE_END).error_code == GONE
    assert looked_up(epochs, LATER).error_code == 0


@pytest.mark.parametrize("broker_epoch", [-1, BROKER_EPOCH, BROKER_EPOCH + 1])
async def test_an_order_in_the_same_epoch_is_the_controllers_word_too(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler],
    replicas: ReplicaManager,
    broker_epoch: int,
) -> None:
    """Not one to the former life of this node: that may have been sent before a successor led."""
    reading, _ = handlers
    elected: list[tuple[str, int, int]] = []
    replicas.on_elected.append(lambda *told: elected.append(told))
    replicas.forget_former_session(BROKER_EPOCH)
    order = roles(("t", state(epoch=EPOCH, replicas=[1, 2, 3], isr=[1, 2])))
    order.broker_epoch = broker_epoch
    is_word = broker_epoch > BROKER_EPOCH
    [answered_with] = obey(replicas, order).topics[0].partition_errors
    code = ErrorCode.NONE if is_word else ErrorCode.STALE_CONTROLLER_EPOCH
    assert answered_with.error_code == code
    assert elected == [("t", 0, EPOCH)] * is_word
    assert fetched(reading, ABOVE_THE_END).error_code == (GONE if is_word else ELSEWHERE)
    [again] = obey(replicas, order).topics[0].partition_errors
    assert again.error_code == ErrorCode.STALE_CONTROLLER_EPOCH, "said once"
    assert elected == [("t", 0, EPOCH)] * is_word


async def test_an_order_in_the_same_epoch_does_not_bring_back_who_led_on_too_long(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler], replicas: ReplicaManager
) -> None:
    replicas.forget_former_session(BROKER_EPOCH)
    replicas.depose(replicas.led("t", 0), EPOCH)
    order = roles(("t", state(epoch=EPOCH, replicas=[1, 2, 3], isr=[1, 2])))
    order.broker_epoch = BROKER_EPOCH + 1
    obey(replicas, order)
    partition = replicas.get("t", 0)
    assert partition is not None
    assert not partition.is_leader


async def test_a_log_that_left_the_consumers_is_not_told_while_the_lease_is_over(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler], lease: Lease
) -> None:
    reading, _ = handlers
    diverged = (END + 1, EPOCH)
    assert fetched(reading, diverged).diverging_epoch.end_offset == END
    lease.is_held = False
    assert fetched(reading, diverged).error_code == ELSEWHERE


async def test_records_are_served_all_the_same(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler], lease: Lease
) -> None:
    reading, epochs = handlers
    lease.is_held = False
    assert fetched(reading, (0, EPOCH)).error_code == 0
    assert looked_up(epochs, EPOCH).end_offset == END


async def test_a_follower_is_told_what_is_here(
    handlers: tuple[FetchHandler, OffsetForLeaderEpochHandler], lease: Lease
) -> None:
    reading, epochs = handlers
    lease.is_held = False
    assert fetched(reading, (END + 1, -1), replica=2).error_code == GONE
    assert looked_up(epochs, LATER, is_internal=True).end_offset == -1
