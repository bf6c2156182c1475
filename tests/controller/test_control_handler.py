"""Orders of the controller as a node takes them: epochs first.

Source: docs/spec/cluster.md §2.16 check C2 on the receiving side.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.handlers.control_plane import ControlPlaneHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.storage.log_manager import LogManager
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster
from tests.handlers.peer import SomePeer, call
from tests.replication.logs import hosting
from tests.sim.simulated_files import SimulatedFiles

EPOCH = 70
"""The broker epoch of the node under test."""


@dataclass
class Receiver:
    handler: ControlPlaneHandler
    replicas: ReplicaManager
    logs: LogManager
    zookeeper: ZooKeeper


@pytest.fixture
async def receiver(cluster: SmallCluster) -> AsyncIterator[Receiver]:
    node = await cluster.start(1)
    files = SimulatedFiles(lambda: 1)
    files.make_directory(Path("/logs"))
    configs = TopicConfigs(cluster.observer, lambda: 1)
    logs = LogManager(
        files,
        [Path("/logs")],
        LogConfig(),
        configs.overrides,
        lambda: 1,
        intervals=StorageSettings(),
        random=random.Random(1),
    )
    await logs.load()
    cache = MetadataCache()
    replicas = hosting(logs, lambda topic, index: True)
    handler = ControlPlaneHandler(
        replicas, cache, configs, node.controller, broker_epoch=lambda: EPOCH
    )
    yield Receiver(handler, replicas, logs, cluster.observer)
    await logs.close()


def leadership(
    controller_epoch: int, leader_epoch: int, *, broker_epoch: int = EPOCH, partitions: int = 1
) -> leader_and_isr.LeaderAndIsrRequest:
    states = [
        leader_and_isr.PartitionState(
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=1,
            leader_epoch=leader_epoch,
            isr=[1],
            replicas=[1],
            is_new=True,
        )
        for index in range(partitions)
    ]
    return leader_and_isr.LeaderAndIsrRequest(
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            leader_and_isr.TopicState(topic_name="t", topic_id=b"t" * 16, partition_states=states)
        ],
        live_leaders=[],
    )


async def led(receiver: Receiver, request: leader_and_isr.LeaderAndIsrRequest) -> Any:
    return await receiver.handler.lead(call(request, 5, peer=SomePeer("INTERNAL")))


def deletion(partitions: int = 1) -> stop_replica.StopReplicaRequest:
    states = [
        stop_replica.PartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
        for index in range(partitions)
    ]
    return stop_replica.StopReplicaRequest(
        controller_epoch=3,
        broker_epoch=EPOCH,
        topic_states=[stop_replica.TopicState(topic_name="t", partition_states=states)],
    )


def news(controller_epoch: int, broker_epoch: int) -> update_metadata.UpdateMetadataRequest:
    return update_metadata.UpdateMetadataRequest(
        controller_epoch=controller_epoch, broker_epoch=broker_epoch, live_brokers=[]
    )


async def test_a_new_log_opens_with_the_settings_of_its_topic(receiver: Receiver) -> None:
    payload = znodes.TopicConfig(config={"segment.bytes": "12345"}).to_json()
    await receiver.zookeeper.create("/config/topics/t", payload)
    answer = await led(receiver, leadership(3, 0))
    assert answer.error_code == ErrorCode.NONE
    partition = receiver.replicas.led("t", 0)
    assert partition.log.config.segment_bytes == 12345
    assert partition.log.topic_id == b"t" * 16


async def test_a_controller_of_the_past_is_refused_whatever_it_orders(receiver: Receiver) -> None:
    await led(receiver, leadership(3, 5))
    assert (await led(receiver, leadership(2, 9))).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    stop = stop_replica.StopReplicaRequest(controller_epoch=2, broker_epoch=EPOCH, topic_states=[])
    assert (
        await receiver.handler.stop(call(stop, 3))
    ).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    learned = receiver.handler.learn(call(news(2, EPOCH), 7))
    assert learned.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert receiver.replicas.led("t", 0).leader_epoch == 5


async def test_an_order_is_refused_when_a_later_controller_speaks_while_it_waits(
    receiver: Receiver,
) -> None:
    waiting = asyncio.create_task(led(receiver, leadership(3, 0)))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert receiver.handler.learn(call(news(4, EPOCH), 7)).error_code == ErrorCode.NONE
    assert (await waiting).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert receiver.replicas.get("t", 0) is None


async def test_a_later_controller_breaks_off_a_long_order_of_a_former_one(
    receiver: Receiver,
) -> None:
    def speak(*_what: object) -> None:
        asyncio.get_running_loop().call_soon(receiver.handler.learn, call(news(4, EPOCH), 7))

    receiver.replicas.on_elected.append(speak)
    answer = await led(receiver, leadership(3, 0, partitions=500))
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert receiver.replicas.get("t", 0) is not None
    assert receiver.replicas.get("t", 499) is None


async def test_a_deletion_waits_until_the_order_before_it_is_obeyed(receiver: Receiver) -> None:
    leading = asyncio.create_task(led(receiver, leadership(3, 0, partitions=500)))
    stopping = asyncio.create_task(receiver.handler.stop(call(deletion(500), 3)))
    answer = await stopping
    assert leading.done()
    assert {error.error_code for error in answer.partition_errors} == {ErrorCode.NONE}
    assert not list(receiver.replicas)
    assert not receiver.logs.logs()


@pytest.mark.parametrize(
    ("broker_epoch", "code"),
    [
        (EPOCH - 1, ErrorCode.STALE_BROKER_EPOCH),
        (EPOCH, ErrorCode.NONE),
        (EPOCH + 1, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
async def test_an_order_to_a_former_life_is_refused_and_one_to_a_later_life_is_not(
    receiver: Receiver, broker_epoch: int, code: ErrorCode
) -> None:
    assert receiver.handler.learn(call(news(3, broker_epoch), 7)).error_code == code
    answer = await led(receiver, leadership(3, 0, broker_epoch=broker_epoch))
    assert answer.error_code == code


async def test_a_stopped_replica_is_gone_and_a_deleted_one_leaves_no_log(
    receiver: Receiver,
) -> None:
    await led(receiver, leadership(3, 0))
    answer = await receiver.handler.stop(call(deletion(), 3))
    assert [error.error_code for error in answer.partition_errors] == [ErrorCode.NONE]
    assert receiver.replicas.get("t", 0) is None
    assert receiver.logs.get("t", 0) is None


async def test_only_the_active_controller_prepares_a_stop(
    cluster: SmallCluster, receiver: Receiver
) -> None:
    await cluster.elected()
    request = controlled_shutdown.ControlledShutdownRequest(broker_id=9, broker_epoch=1)
    assert await resolved(receiver.handler.prepare_stop(call(request, 3))) == (
        ErrorCode.BROKER_NOT_AVAILABLE
    )
    other = await cluster.start(2, ("broker",))
    answer = ControlPlaneHandler(
        receiver.replicas,
        MetadataCache(),
        TopicConfigs(cluster.observer, lambda: 1),
        other.controller,
        broker_epoch=lambda: EPOCH,
    ).prepare_stop(call(request, 3))
    assert await resolved(answer) == ErrorCode.STALE_CONTROLLER_EPOCH


async def resolved(pending: PendingResponse) -> int:
    if not pending.is_resolved:
        done = asyncio.Event()
        pending.add_done_callback(lambda _parked: done.set())
        async with asyncio.timeout(60):
            await done.wait()
    code: int = pending.answer.error_code
    return code
