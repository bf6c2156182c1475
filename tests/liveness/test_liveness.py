"""Who judges a node: a controller of ours by beacons, one of Apache Kafka by the session alone."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.liveness.liveness import RENEWAL, Liveness
from barnabas.broker.settings.liveness_settings import LivenessSettings
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.protocol.beacon import Beacon
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble

NODE, OURS, KAFKA = 1, 2, 3
KAFKA_REGISTRATION = (
    b'{"version":5,"host":"127.0.0.1","port":9092,"jmx_port":-1,"timestamp":"1","features":{},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:9092","INTERNAL://127.0.0.1:9093"],'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","INTERNAL":"SASL_PLAINTEXT"}}'
)


async def put(zookeeper: ZooKeeper, node: int, data: bytes) -> int:
    """Register a node; its broker epoch."""
    await zookeeper.create(znodes.broker_path(node), data)
    stat = await zookeeper.exists(znodes.broker_path(node))
    assert stat is not None
    return stat.czxid


@asynccontextmanager
async def living(liveness: Liveness) -> AsyncIterator[None]:
    running = asyncio.ensure_future(liveness.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def zookeeper() -> ZooKeeper:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    for path in ("/brokers", znodes.BROKER_IDS):
        await session.create(path)
    ours = znodes.BrokerRegistration(
        endpoints={"INTERNAL": ("127.0.0.1", 9094)},
        security={"INTERNAL": "SASL_PLAINTEXT"},
        timestamp=1,
        sends_beacons=True,
    )
    await put(session, OURS, ours.to_json())
    await put(session, KAFKA, KAFKA_REGISTRATION)
    return session


async def until_answering(liveness: Liveness, *, is_answering: bool) -> None:
    async with asyncio.timeout(60):
        while (liveness.problem() is ErrorCode.NONE) != is_answering:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.005)


async def test_under_a_controller_of_kafka_the_lease_is_the_session_and_nothing_settles_for_later(
    zookeeper: ZooKeeper,
) -> None:
    """Back under one of ours, who begins to lead waits for older leases again."""
    epoch = await put(zookeeper, NODE, KAFKA_REGISTRATION)
    liveness = Liveness(
        LivenessSettings(),
        zookeeper,
        node_id=NODE,
        cluster_id="c",
        secret="secret",
        clock=time.monotonic,
        rng=random.Random(1),
        peers=dict,
    )
    lease = liveness.lease
    assert isinstance(lease, TimedLease)
    async with living(liveness):
        liveness.registered(epoch)
        liveness.controller_seen(KAFKA)
        await until_answering(liveness, is_answering=True)
        assert lease.is_settled(7)
        assert not liveness.is_controller_silent()
        liveness.controller_seen(OURS)
        await until_answering(liveness, is_answering=False)
        assert not lease.is_settled(8)
        assert not lease.is_settled(7)


async def test_a_controller_that_was_never_heard_is_judged_by_its_session_alone(
    zookeeper: ZooKeeper,
) -> None:
    """Who hears nobody (another secret, a packet filter) deposed every controller in turn."""
    now = 100.0
    epoch = await put(zookeeper, NODE, KAFKA_REGISTRATION)
    liveness = Liveness(
        LivenessSettings(),
        zookeeper,
        node_id=NODE,
        cluster_id="c",
        secret="secret",
        clock=lambda: now,
        rng=random.Random(1),
        peers=dict,
    )
    beacons = liveness.beacons
    assert beacons is not None
    silent_s = 4 * beacons.beacon_sender.times.timeout + 1
    heard = Beacon("c", OURS, 1, 5, 1, 1, controller_epoch=1, authority_us=500_000)
    async with living(liveness):
        liveness.registered(epoch)
        liveness.controller_seen(OURS)
        while not beacons.is_sending:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        now += silent_s
        assert not liveness.is_controller_silent()
        assert beacons.failure_detector.take(heard)
        beacons.beacon_sender.receive_beacon(heard)
        assert not liveness.is_controller_silent()
        now += silent_s
        assert liveness.is_controller_silent()
        liveness.controller_seen(OURS)  # again, in another epoch: it was silent for long before
        now += silent_s
        assert not liveness.is_controller_silent()


async def test_a_lease_that_ended_may_come_back_for_a_while_and_then_others_coordinate() -> None:
    now = 100.0
    liveness = Liveness(
        LivenessSettings(),
        SimEnsemble(asyncio.get_running_loop()).connect(),
        node_id=NODE,
        cluster_id="c",
        secret=None,
        clock=lambda: now,
        rng=random.Random(1),
        peers=dict,
    )
    lease = liveness.lease
    assert isinstance(lease, TimedLease)
    seen = [liveness.problem()]
    lease.extend(now + 1)
    seen.append(liveness.problem())
    now += 1
    seen.append(liveness.problem())
    now += RENEWAL * LivenessSettings().times.timeout
    seen.append(liveness.problem())
    assert seen == [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ]
