"""A cluster small enough to look into: real controllers, a ZooKeeper in memory, obedient nodes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.create_topics import RequestedTopic, TopicCreator
from barnabas.broker.controller.term import ControllerDependencies
from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.lifecycle.peer_compatibility import PeerVerdict
from barnabas.broker.lifecycle.registration import Registration, SessionRenewal
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import ControllerSettings
from barnabas.client.errors import Disconnected
from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leader_and_isr, stop_replica, update_metadata
from barnabas.protocol.zookeeper import znodes
from tests.harness.fixed_peers import FixedPeers
from tests.sim.simulated_files import SimulatedFiles
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

Partition = tuple[str, int]
BOTH = ("broker", "coordinator")


@dataclass
class ReceivedRequest:
    """A control request as a node received it."""

    node: int
    kind: str
    request: Any
    code: int


@dataclass
class Replica:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    is_new: bool


class SmallNode:
    """A node as the controller sees it: registers, obeys, and remembers what it was told."""

    def __init__(self, cluster: SmallCluster, node_id: int, roles: tuple[str, ...]) -> None:
        self.id = node_id
        self.cache = MetadataCache()
        self.hosted: dict[Partition, Replica] = {}
        self.broken: set[Partition] = set()
        self.refusals: dict[Partition, ErrorCode] = {}
        """What roles are answered with instead of being taken over."""
        self.listens = asyncio.Event()
        """Cleared: orders arrive, and are obeyed once it is set again."""
        self.listens.set()
        self.zookeeper: SimZooKeeper = cluster.ensemble.connect()
        self.is_up = True
        self._cluster = cluster
        self.registration = Registration(
            self.zookeeper,
            node_id,
            znodes.BrokerRegistration(
                endpoints={
                    "PLAINTEXT": ("host", 9000 + node_id),
                    "INTERNAL": ("host", 7000 + node_id),
                },
                timestamp=0,
                roles=roles,
            ),
            FixedPeers(self.zookeeper, node_id, PeerVerdict.ACCEPTED),
            files=cluster.files,
            session_directory=cluster.directory(node_id),
        )
        dependencies = ControllerDependencies(
            zookeeper=self.zookeeper,
            node_id=node_id,
            internal_listener="INTERNAL",
            settings=cluster.settings,
            dial=cluster.dial,
            now_ms=lambda: 1,
            rng=cluster.rng,
            may_be_unclean=lambda topic: topic in cluster.unclean_topics,
            may_delete_topics=cluster.may_delete_topics,
        )
        self.controller = Controller(
            dependencies,
            is_candidate="coordinator" in roles,
            former_session=self.registration.former_session,
        )
        self.controller.on_idle.append(cluster.changed.set)
        self.renewal = SessionRenewal(self.zookeeper, [self.registration.register, self._stand])
        self.tasks: list[asyncio.Task[None]] = []

    async def _stand(self) -> None:
        self.controller.campaign()

    def obey(self, request: Any) -> Any:
        """Answer as the control handler does, without a log behind it."""
        if request.controller_epoch < self.cache.controller_epoch:
            return self._refused(request, ErrorCode.STALE_CONTROLLER_EPOCH)
        if 0 <= request.broker_epoch < self.registration.broker_epoch:
            return self._refused(request, ErrorCode.STALE_BROKER_EPOCH)
        self.cache.controller_epoch = request.controller_epoch
        if isinstance(request, update_metadata.UpdateMetadataRequest):
            self.cache.update(request)
            return update_metadata.UpdateMetadataResponse()
        if isinstance(request, leader_and_isr.LeaderAndIsrRequest):
            return self._lead(request)
        return self._stop(request)

    def _refused(self, request: Any, code: ErrorCode) -> Any:
        response = api.spec_of(type(request)).response
        return response(error_code=code)

    def _lead(self, request: leader_and_isr.LeaderAndIsrRequest) -> Any:
        topics = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                known = self.hosted.get(key)
                code = ErrorCode.NONE
                if key in self.broken:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif key in self.refusals:
                    code = self.refusals[key]
                elif known is not None and state.leader_epoch <= known.leader_epoch:
                    code = ErrorCode.STALE_CONTROLLER_EPOCH
                else:
                    self.hosted[key] = Replica(
                        state.leader, state.leader_epoch, tuple(state.isr), state.is_new
                    )
                errors.append(
                    leader_and_isr.PartitionError(partition_index=key[1], error_code=code)
                )
            topics.append(
                leader_and_isr.TopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
        return leader_and_isr.LeaderAndIsrResponse(topics=topics, partition_errors=[])

    def _stop(self, request: stop_replica.StopReplicaRequest) -> Any:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                if state.delete_partition:
                    self.hosted.pop(key, None)
                errors.append(
                    stop_replica.PartitionError(topic_name=key[0], partition_index=key[1])
                )
        return stop_replica.StopReplicaResponse(partition_errors=errors)


class SmallConnection:
    """A connection: every request and answer passes through the codec of its version."""

    def __init__(self, cluster: SmallCluster, node: SmallNode) -> None:
        self._cluster = cluster
        self._node = node

    async def request(
        self, message: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        assert version is not None
        spec = api.spec_of(type(message))
        request = decode(spec.request, version, encode(message, version))
        await self._node.listens.wait()
        await asyncio.sleep(self._cluster.delay())
        if not self._node.is_up or self._cluster.nodes.get(self._node.id) is not self._node:
            raise Disconnected(f"node {self._node.id} is down")
        answer = self._node.obey(request)
        kind = type(message).__name__.removesuffix("Request")
        self._cluster.orders.append(
            ReceivedRequest(self._node.id, kind, request, answer.error_code)
        )
        self._cluster.changed.set()
        await asyncio.sleep(self._cluster.delay())
        if self._cluster.loses_answer():
            raise Disconnected(f"the answer of node {self._node.id} is lost")
        return decode(spec.response, version, encode(answer, version))

    async def close(self) -> None:
        return None


@dataclass
class SmallCluster:
    """Start nodes, break them, and wait for what must come of it."""

    tasks: asyncio.TaskGroup
    ensemble: SimEnsemble
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    nodes: dict[int, SmallNode] = field(default_factory=dict)
    orders: list[ReceivedRequest] = field(default_factory=list)
    unclean_topics: set[str] = field(default_factory=set)
    may_delete_topics: bool = True
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    """Of every node's controller."""
    delay: Callable[[], float] = lambda: 0.0
    """How long an order, or an answer, is under way."""
    loses_answer: Callable[[], bool] = lambda: False
    """Whether the next answer to an order gets lost: then the order comes again."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.files = SimulatedFiles(lambda: 1)
        self.observer = self.ensemble.connect()

    def directory(self, node_id: int) -> Path:
        path = Path(f"/node-{node_id}")
        self.files.make_directory(path)
        return path

    async def dial(self, host: str, port: int) -> SmallConnection:
        await asyncio.sleep(0)
        node = self.nodes.get(port - 7000)
        if node is None or not node.is_up:
            raise Disconnected(f"{host}:{port}")
        return SmallConnection(self, node)

    async def start(self, node_id: int, roles: tuple[str, ...] = BOTH) -> SmallNode:
        await create_persistent_znodes(self.observer)
        node = self.nodes[node_id] = SmallNode(self, node_id, roles)
        await node.registration.register()
        for work in (node.controller.run(), node.renewal.run()):
            node.tasks.append(self.tasks.create_task(work))
        node.controller.campaign()
        return node

    async def kill(self, node_id: int) -> None:
        """As kill -9: nothing is said; the session ends when ZooKeeper notices."""
        node = self.nodes.pop(node_id)
        node.is_up = False
        node.zookeeper.crash()
        for task in node.tasks:
            task.cancel()
        await asyncio.sleep(0)

    async def notice(self, node: SmallNode) -> None:
        """ZooKeeper's timeout for a killed node, now."""
        self.ensemble.end(node.zookeeper.session_id)

    async def bury(self, node_id: int) -> None:
        node = self.nodes[node_id]
        await self.kill(node_id)
        await self.notice(node)

    async def create(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        """Write a topic as the topic writer does, whatever its factor."""
        record = znodes.TopicAssignment(partitions=assignment, topic_id=self.rng.randbytes(16))
        await self.observer.create(
            znodes.topic_config_path(name), znodes.TopicConfig(config={}).to_json()
        )
        await self.observer.create(znodes.topic_path(name), record.to_json())

    def writer(self, **defaults: int) -> TopicCreator:
        counts = {"partitions": 1, "factor": 1} | defaults
        return TopicCreator(self.observer, self.rng, **counts, log_defaults=LogConfig)

    async def create_by_wish(self, **wish: Any) -> None:
        writer = self.writer()
        await writer.create(await writer.plan(RequestedTopic(**wish)))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    @property
    def active(self) -> SmallNode | None:
        ruling = [node for node in self.nodes.values() if node.controller.is_active]
        return max(ruling, key=lambda node: node.controller.epoch) if ruling else None

    async def elected(self) -> SmallNode:
        await self.until(lambda: self.active is not None)
        assert self.active is not None
        return self.active

    def knows_leader(self, topic: str, index: int, leader: int) -> bool:
        return all(
            (info := node.cache.snapshot.partition(topic, index)) is not None
            and info.leader == leader
            for node in self.nodes.values()
        )

    async def led(self, topic: str, index: int, leader: int) -> None:
        """The leader was told to lead, and every node that it does: by requests of their own."""
        node, key = self.nodes.get(leader), (topic, index)
        await self.until(
            lambda: (
                self.knows_leader(topic, index, leader)
                and (node is None or (key in node.hosted and node.hosted[key].leader == leader))
            )
        )

    async def state(self, topic: str, index: int) -> znodes.PartitionState:
        data, _stat = await self.observer.get(znodes.partition_state_path(topic, index))
        return znodes.PartitionState.from_json(data)

    async def assignment(self, topic: str) -> znodes.TopicAssignment:
        data, _stat = await self.observer.get(znodes.topic_path(topic))
        return znodes.TopicAssignment.from_json(data)

    async def set_in_sync(self, topic: str, index: int, isr: tuple[int, ...]) -> None:
        """Change the in-sync set as the leader does: same epoch, and nobody is told yet."""
        state = dataclasses.replace(await self.state(topic, index), isr=isr)
        await self.observer.set(znodes.partition_state_path(topic, index), state.to_json())

    async def gone(self, path: str) -> None:
        """Return when a znode does not exist."""
        async with asyncio.timeout(60):
            while True:
                changed = asyncio.Event()
                if await self.observer.exists(path, changed.set) is None:
                    return
                await changed.wait()

    def end(self) -> None:
        for node in self.nodes.values():
            for task in node.tasks:
                task.cancel()
