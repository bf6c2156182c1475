"""Groups over the wire: sockets, the coordinator and real logs of ``__consumer_offsets``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from barnabas.broker.handlers.groups import GroupsHandler, caller_of
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import find_coordinator, offset_commit, offset_fetch
from tests.handlers.peer import SomePeer
from tests.net.client import RawClient
from tests.replication.logs import NOW_MS, ManualLogManager, follow, lead

PARTITIONS = 4
GROUP = "g"
HOME = group_partition(GROUP, PARTITIONS)


class TopicsOfOneNode:
    """Implements coordinator.ports.Topics: one topic ``t``, all led by one node."""

    def partition_count(self, topic: str) -> int | None:
        return {"t": 8, OFFSETS_TOPIC: PARTITIONS}.get(topic)

    def missing_partition_error(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        return 1, f"{listener.lower()}.host", 9000 + partition

    def may_lead(self, partition: int) -> bool:
        return False

    def lacks_offsets_topic(self) -> bool:
        return False

    def create_offsets_topic(self) -> None:
        raise AssertionError("it is there")


@dataclass
class CoordinatorAndLogs:
    client: RawClient
    replicas: ReplicaManager
    shelf: ManualLogManager

    async def until_served(self, group: str = GROUP) -> None:
        """Ask until the offsets are loaded."""
        async with asyncio.timeout(60):
            while (await self.fetch(group)).error_code == 14:
                pass

    async def fetch(self, group: str = GROUP) -> offset_fetch.OffsetFetchResponse:
        request = offset_fetch.OffsetFetchRequest(
            group_id=group, topics=[offset_fetch.Topic(name="t", partition_indexes=[0])]
        )
        answer: offset_fetch.OffsetFetchResponse = await self.client.ask(request, 7)
        return answer


@pytest.fixture
async def node(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> AsyncIterator[CoordinatorAndLogs]:
    loop = asyncio.get_running_loop()
    coordinator = GroupCoordinator(
        node_id=1,
        config=CoordinatorConfig(),
        log=StateLogPort(replicas, OFFSETS_TOPIC, loop),
        topics=TopicsOfOneNode(),
        zookeeper_offsets=None,
        loop=loop,
        now_ms=lambda: NOW_MS,
        random=random.Random(1),
    )
    replicas.on_elected.append(lambda _, index, epoch: coordinator.on_elected(index, epoch))
    replicas.on_resigned.append(lambda _, index, epoch: coordinator.on_resigned(index, epoch))
    coordinator.start(PARTITIONS)
    async with asyncio.TaskGroup() as tasks:
        background = tasks.create_task(coordinator.run())
        dispatcher = Dispatcher(tasks)
        dispatcher.register(GroupsHandler(coordinator).handlers())
        listener = Listener("CLIENT", dispatcher, Limits(NetworkSettings()))
        await listener.bind("127.0.0.1", 0)
        listener.serve()
        client = await RawClient.open(listener.port)
        yield CoordinatorAndLogs(client, replicas, shelf)
        await client.close()
        await listener.close()
        coordinator.stop()
        background.cancel()


def commit(offset: int, group: str = GROUP) -> tuple[offset_commit.OffsetCommitRequest, int]:
    partition = offset_commit.Partition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = offset_commit.Topic(name="t", partitions=[partition])
    return offset_commit.OffsetCommitRequest(group_id=group, topics=[topic]), 8


def code(answer: offset_commit.OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


async def test_a_coordinator_is_found_as_the_listener_sees_it(node: CoordinatorAndLogs) -> None:
    request = find_coordinator.FindCoordinatorRequest(key=GROUP)
    answer = await node.client.ask(request, 2)
    assert (answer.error_code, answer.host, answer.port) == (0, "client.host", 9000 + HOME)


async def test_a_commit_is_refused_where_the_group_is_not_coordinated(
    node: CoordinatorAndLogs,
) -> None:
    assert code(await node.client.ask(*commit(1))) == 16


async def test_what_is_committed_is_fetched(node: CoordinatorAndLogs) -> None:
    lead(node.replicas, OFFSETS_TOPIC, HOME)
    await node.until_served()
    assert code(await node.client.ask(*commit(42))) == 0
    assert (await node.fetch()).topics[0].partitions[0].committed_offset == 42


async def test_commits_of_one_turn_are_one_append_and_answered_in_order(
    node: CoordinatorAndLogs,
) -> None:
    lead(node.replicas, OFFSETS_TOPIC, HOME)
    await node.until_served()
    before = node.replicas.led(OFFSETS_TOPIC, HOME).log.size
    await node.client.ask(*commit(0))
    one = node.replicas.led(OFFSETS_TOPIC, HOME).log.size - before
    node.client.send(*(commit(offset) for offset in range(1, 101)))
    first = None
    for _ in range(100):
        number, answer = await node.client.receive()
        assert code(answer) == 0
        assert first is None or number == first + 1
        first = number
    hosted = node.replicas.led(OFFSETS_TOPIC, HOME)
    assert hosted.log.end_offset == hosted.high_watermark == 101
    assert hosted.log.size - before < 100 * one
    assert (await node.fetch()).topics[0].partitions[0].committed_offset == 100


async def test_committed_offsets_outlive_a_change_of_leaders(node: CoordinatorAndLogs) -> None:
    lead(node.replicas, OFFSETS_TOPIC, HOME)
    await node.until_served()
    await node.client.ask(*commit(7))
    follow(node.replicas, OFFSETS_TOPIC, HOME, epoch=1)
    assert (await node.fetch()).error_code == 16
    lead(node.replicas, OFFSETS_TOPIC, HOME, epoch=2, partition_epoch=2)
    await node.until_served()
    assert (await node.fetch()).topics[0].partitions[0].committed_offset == 7


async def test_a_failed_disk_makes_the_node_no_coordinator(node: CoordinatorAndLogs) -> None:
    lead(node.replicas, OFFSETS_TOPIC, HOME)
    await node.until_served()
    node.shelf.log(OFFSETS_TOPIC, HOME).take_offline("gone")
    assert code(await node.client.ask(*commit(7))) == 16


def test_a_caller_is_remembered_with_its_connection() -> None:
    peer = SomePeer(host="10.0.0.1")
    first, again, other = (caller_of(peer, name) for name in ("a", "a", None))
    assert first is again
    assert (first.client_id, first.host) == ("a", "10.0.0.1")
    assert other.client_id == ""
