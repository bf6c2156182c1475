"""CreateTopics and DeleteTopics: checks what is asked, then writes it to ZooKeeper.

Source: docs/spec/cluster.md §2.9 to §2.11. Any node may do it; the controller sees the znodes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.broker.metadata.internal_topics import refuse_loss, with_needed
from barnabas.broker.metadata.random_uuid import new_topic_id
from barnabas.broker.settings.log_config import LogConfig, refuse_tiering
from barnabas.client.zookeeper.interface import (
    Create,
    MultiFailed,
    NodeExists,
    Op,
    PayloadTooLarge,
    Set,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.names import collides, topic_problem
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes

from .replica_assignment import Assignment, CandidateNode, assign_new, candidates_for

UNSET: Final = -1
"""In place of a count: the node's default, or as the assignment says."""
PARTITIONS_MAX: Final = 50_000
"""No assignment of more fits into a znode; refused before a node works it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTopic:
    """A topic as somebody asks for it."""

    name: str
    partitions: int = UNSET
    factor: int = UNSET
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Replicas chosen by hand; then both counts are UNSET."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic as it will be."""

    name: str
    topic_id: bytes
    assignment: Assignment
    configs: Mapping[str, str]
    config: LogConfig
    """The settings in force: the node's defaults with ``configs`` on top."""

    @property
    def factor(self) -> int:
        """Replicas of each partition."""
        return len(self.assignment[0])


class KnownCluster:
    """Topics and live nodes as ZooKeeper has them, read once for all topics of a request.

    Read for each topic, a request for 10,000 topics read 100,000,000 names. As old as the request
    at most: Kafka's brokers are those of its beginning, too (ZkAdminManager.createTopics).
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._names: set[str] | None = None
        self._alike: dict[str, list[str]] = {}
        """The names that are the same where '.' and '_' count as one."""
        self._nodes: list[CandidateNode] | None = None

    async def has_topic(self, name: str) -> bool:
        """Whether a topic of this name exists."""
        return name in await self._topics()

    async def colliding(self, name: str) -> str | None:
        """An existing topic whose metrics could not be told from those of this one."""
        await self._topics()
        return collides(name, self._alike.get(_folded(name), ()))

    async def nodes(self) -> list[CandidateNode]:
        """Every registered node that can be read."""
        if self._nodes is None:
            self._nodes = await live_nodes(self._zookeeper)
        return self._nodes

    def add(self, name: str) -> None:
        """Note a topic that was created."""
        if self._names is not None and name not in self._names:
            self._names.add(name)
            self._alike.setdefault(_folded(name), []).append(name)

    def forget(self) -> None:
        """Read anew for the next topic."""
        self._names, self._alike, self._nodes = None, {}, None

    async def _topics(self) -> set[str]:
        if self._names is None:
            found = await self._zookeeper.children(znodes.BROKER_TOPICS)
            self._names = set()
            for name in found:
                self.add(name)
        return self._names


class TopicCreator:
    """Judges wishes and writes what they come to."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        rng: random.Random,
        *,
        partitions: int,
        factor: int,
        log_defaults: Callable[[], LogConfig],
    ) -> None:
        """``log_defaults`` are the node's settings for topics, which may change."""
        self._zookeeper = zookeeper
        self._rng = rng
        self._partitions = partitions
        self._factor = factor
        self._log_defaults = log_defaults

    def known_cluster(self) -> KnownCluster:
        """To be shared by the topics of one request."""
        return KnownCluster(self._zookeeper)

    async def plan(self, wish: RequestedTopic, known: KnownCluster | None = None) -> PlannedTopic:
        """Work out assignment and settings; raises Refused and writes nothing.

        ``known`` None: nothing was read for this topic yet. Refusals are
        INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT or INVALID_REQUEST.
        """
        problem = topic_problem(wish.name)
        if problem is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        known = known or self.known_cluster()
        await self._refuse_existing(wish.name, known)
        configs, config = self._judged_configs(with_needed(wish.name, wish.configs))
        refuse_loss(wish.name, configs)
        return PlannedTopic(
            name=wish.name,
            topic_id=new_topic_id(self._rng),
            assignment=self._assignment(wish, await known.nodes()),
            configs=configs,
            config=config,
        )

    async def create(self, plan: PlannedTopic, known: KnownCluster | None = None) -> None:
        """Write settings and assignment, both or none; ``known`` then has the topic, too.

        Raises Refused: TOPIC_ALREADY_EXISTS, or INVALID_REQUEST for more than a znode can hold.
        """
        known = known or self.known_cluster()
        try:
            await self._write(plan)
        except (Refused, ZooKeeperError):
            # Somebody else created a topic, or nobody knows whether this one was created.
            known.forget()
            raise
        known.add(plan.name)

    async def mark_for_deletion(self, name: str) -> None:
        """Ask the controller to delete a topic; asking twice is asking once."""
        try:
            await self._zookeeper.create(znodes.deletion_path(name))
        except NodeExists:
            return

    async def exists(self, name: str) -> bool:
        """Whether ZooKeeper has a topic, be it known to this node or not."""
        return await self._zookeeper.exists(znodes.topic_path(name)) is not None

    async def deleted(self, name: str) -> None:
        """Return when the deletion of a topic is through and its name is free again."""
        while True:
            gone = asyncio.Event()
            if await self._zookeeper.exists(znodes.deletion_path(name), gone.set) is None:
                return
            await gone.wait()

    async def _write(self, plan: PlannedTopic) -> None:
        record = znodes.TopicAssignment(partitions=plan.assignment, topic_id=plan.topic_id)
        settings = znodes.TopicConfig(config=plan.configs).to_json()
        path = znodes.topic_config_path(plan.name)
        topic = Create(znodes.topic_path(plan.name), record.to_json())
        is_left_over = await self._zookeeper.exists(path) is not None
        write: Op = Set(path, settings) if is_left_over else Create(path, settings)
        try:
            await self._zookeeper.multi(topic, write)
        except MultiFailed as failed:
            if isinstance(failed.error, NodeExists):
                raise _exists(plan.name) from None
            raise failed.error from None
        except PayloadTooLarge:
            reason = "assignment and settings are more than a znode can hold"
            raise Refused(ErrorCode.INVALID_REQUEST, reason) from None

    async def _refuse_existing(self, name: str, known: KnownCluster) -> None:
        if await known.has_topic(name):
            raise _exists(name)
        if await self._zookeeper.exists(znodes.deletion_path(name)) is not None:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"{name} is still being deleted")
        other = await known.colliding(name)
        if other is not None:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} cannot be told from the existing {other}: '.' and '_' count as one",
            )

    def _judged_configs(
        self, configs: Mapping[str, str | None]
    ) -> tuple[dict[str, str], LogConfig]:
        given = {}
        for name, value in configs.items():
            if value is None:
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: null is no value")
            given[name] = value
        try:
            config = self._log_defaults().with_overrides(given)
            refuse_tiering(given)
        except ConfigError as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        return given, config

    def _assignment(self, wish: RequestedTopic, live: Sequence[CandidateNode]) -> Assignment:
        nodes = candidates_for(wish.name, live)
        if wish.assignment:
            if wish.partitions != UNSET or wish.factor != UNSET:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "replicas chosen by hand leave no choice of partitions or factor: set both -1",
                )
            others = {node.id for node in live} - {node.id for node in nodes}
            return _judged_by_hand(wish.assignment, others)
        partitions = self._partitions if wish.partitions == UNSET else wish.partitions
        factor = self._factor if wish.factor == UNSET else wish.factor
        if partitions <= 0:
            raise Refused(ErrorCode.INVALID_PARTITIONS, "at least one partition is needed")
        if partitions > PARTITIONS_MAX:
            reason = f"at most {PARTITIONS_MAX} partitions fit into a topic's znode"
            raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
        _judge_factor(factor, len(nodes))
        return assign_new(nodes, partitions=partitions, factor=factor, rng=self._rng)


async def live_nodes(zookeeper: ZooKeeper) -> list[CandidateNode]:
    """Every registered node that can be read, with rack and roles."""
    ids = znodes.broker_ids(await zookeeper.children(znodes.BROKER_IDS))
    records = await asyncio.gather(*(read_if_any(zookeeper, znodes.broker_path(i)) for i in ids))
    found = []
    for node_id, record in zip(ids, records, strict=True):
        try:
            node = znodes.BrokerRegistration.from_json(record[0] if record else b"")
        except ValueError:
            continue
        found.append(CandidateNode(node_id, node.rack, frozenset(node.roles)))
    return found


def _judge_factor(factor: int, nodes: int) -> None:
    if factor <= 0:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "at least one replica is needed")
    if factor > nodes:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need as many live nodes of the topic's role, there are {nodes}",
        )


def _judged_by_hand(chosen: Mapping[int, Sequence[int]], others: set[int]) -> Assignment:
    """The assignment as it was chosen; ``others`` are live nodes that have not the topic's role.

    A node that is down, or was never heard of, may be named: its replica is offline until it comes,
    as in Kafka (ZkAdminManager.createTopics). Of such a node the role is not known.
    """
    if sorted(chosen) != list(range(len(chosen))):
        raise _misassigned("partitions must be numbered from 0 without a gap")
    lengths = {len(replicas) for replicas in chosen.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise _misassigned("every partition needs the same number of replicas, at least one")
    for index, replicas in chosen.items():
        if len(set(replicas)) != len(replicas):
            raise _misassigned(f"partition {index} names a node twice")
        if min(replicas) < 0:  # Kafka takes it: a replica that nothing can ever have
            raise _misassigned(f"partition {index} names a node below 0")
        if strangers := sorted(others.intersection(replicas)):
            raise _misassigned(f"partition {index}: nodes {strangers} are not of the topic's role")
    return {index: tuple(chosen[index]) for index in sorted(chosen)}


def _folded(name: str) -> str:
    """The same for all names that :func:`collides` cannot tell apart."""
    return name.replace(".", "_")


def _misassigned(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _exists(name: str) -> Refused:
    return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
