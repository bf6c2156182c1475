"""Metadata: nodes, topics and leaders as the peer's listener sees them.

Source: docs/spec/cluster.md §2.9, §2.15 and §3.10; docs/spec/protocol.md §2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from barnabas.broker.metadata.metadata_cache import (
    NO_TOPIC_ID,
    MetadataCache,
    PartitionInfo,
    Snapshot,
)
from barnabas.broker.quota.controller_mutation import ControllerMutationQuotas
from barnabas.coordinator.ports import STATE_TOPICS
from barnabas.protocol.acl import ResourceType
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.encoded import EncodedElement
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import metadata
from barnabas.protocol.names import INTERNAL_TOPICS, is_internal, topic_problem

from .administration_guards import cluster_operations
from .call import Call, Handler
from .cooperative import Turn, in_turns, run_to_end
from .encoded_topics import KEPT_MAX, EncodedTopics
from .guards import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC, GuardContext, visible
from .throttled_calls import mutation_quota, throttled

LISTENER_NOT_FOUND_SINCE: Final = 6
LOOKUP_BY_ID_SINCE: Final = 12
TOPIC_OPERATIONS: Final = 3576
CLUSTER_OPERATIONS: Final = 8096
"""Everything that may be done to a topic, to the cluster: where nobody forbids anything."""
UNTOLD: Final = -(2**31)
NOT_SERVED: Final = INTERNAL_TOPICS - STATE_TOPICS
"""Never made like an ordinary topic because a client, such as sarama, asks for it by name."""
PATIENCE_S: Final = 1.0
"""How long a node that knows of no node waits for a controller before it says so."""
NO_CONTROLLER: Final = -1
NO_LEADER: Final = -1


def _soon(_name: str) -> ErrorCode:
    return ErrorCode.LEADER_NOT_AVAILABLE


class MetadataHandler:
    """Answers from the latest snapshot; a topic that is missing may be created behind that."""

    def __init__(
        self,
        cache: MetadataCache,
        cluster_id: str,
        *,
        create: Callable[[str], bool | None] | None,
        creation_answer: Callable[[str], ErrorCode] = _soon,
        mutations: ControllerMutationQuotas | None = None,
        partitions: int = 1,
        rights: GuardContext | None = None,
    ) -> None:
        """``create`` has a missing topic created soon; None when that is switched off.

        It says whether that was not asked for already: then ``partitions`` count as changes of
        whoever asked, where ``mutations`` bind that client. ``creation_answer`` says what a topic
        is answered with that is being created, or cannot be. ``rights`` None: everybody may see and
        do everything.
        """
        self._mutations = mutations
        self._partitions = partitions
        self._cache = cache
        self._rights = rights
        self._cluster_id = cluster_id
        self._create = create
        self._creation_answer = creation_answer
        self._encoded: dict[tuple[str, int], EncodedTopics] = {}

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.METADATA: self.answer}

    def answer(
        self, call: Call
    ) -> metadata.MetadataResponse | Coroutine[Any, Any, metadata.MetadataResponse]:
        """Describe; but a node that has just started is first told which nodes there are."""
        if self._cache.snapshot.has_nodes(call.peer.listener):
            return in_turns(self.describing(call))
        return self._describe_soon(call)

    async def _describe_soon(self, call: Call) -> metadata.MetadataResponse:
        await wait_for_nodes(self._cache, call)
        return await run_to_end(self.describing(call))

    def describing(self, call: Call) -> Generator[None, None, metadata.MetadataResponse]:
        """Describe the nodes and the topics asked for; every topic when none is named.

        As they are at the beginning, however many turns it takes.
        """
        request: metadata.MetadataRequest = call.request
        view = _View(self._cache.snapshot, call.peer.listener, call.version)
        if request.include_topic_authorized_operations:
            topics = yield from self._with_objects(call, view)
        else:
            view.encoded = self._encoded_topics(view)
            topics = yield from self._encoded_topics_of(call, view, view.encoded)
        include_cluster = request.include_cluster_authorized_operations
        answer = metadata.MetadataResponse(
            brokers=view.brokers(),
            cluster_id=self._cluster_id,
            controller_id=controller_id(view.snapshot),
            topics=topics,
            cluster_authorized_operations=self._operations(call) if include_cluster else UNTOLD,
        )
        if view.created:
            quota = mutation_quota(self._mutations, call, strict_since=None)
            quota.record(view.created * self._partitions)
            throttled(call, answer, quota.throttle_ms)
        return answer

    def _with_objects(
        self, call: Call, view: _View
    ) -> Generator[None, None, Sequence[metadata.TopicResult]]:
        """Where each topic says what the client may do with it, which differs from all others."""
        topics: list[metadata.TopicResult] = []
        turn = Turn()
        for make in (yield from self._topics(call, view, turn)):
            topic = make()
            assert isinstance(topic, metadata.TopicResult), "nothing is encoded in this view"
            topics.append(self._with_operations(call, topic))
            if turn.is_over(1 + len(topics[-1].partitions)):
                yield
        return topics

    def _encoded_topics_of(
        self, call: Call, view: _View, encoded: EncodedTopics
    ) -> Generator[None, None, Sequence[metadata.TopicResult]]:
        """The same as bytes, most of which were made for others before."""
        is_all = self._rights is None and _asks_for_all(call)
        whole = encoded.all(view.snapshot) if is_all else None
        if whole is not None:
            return whole
        found: list[EncodedElement] = []
        turn = Turn()
        for make in (yield from self._topics(call, view, turn)):
            topic = make()
            if isinstance(topic, metadata.TopicResult):
                topic = encoded.encoded(topic)
            found.append(topic)
            if turn.is_over(1 + view.take_steps()):
                yield
        return encoded.keep_all(view.snapshot, found) if is_all else encoded.elements(found)

    def _encoded_topics(self, view: _View) -> EncodedTopics:
        """What is kept for this listener and version, if nodes are as they were."""
        known = self._encoded.pop(view.place, None)
        if known is None or known.nodes != view.nodes:
            known = EncodedTopics(*view.place, *view.nodes)
        self._encoded[view.place] = known  # the last in order: the first is given up
        if len(self._encoded) > KEPT_MAX:
            del self._encoded[next(iter(self._encoded))]
        return known

    def _operations(self, call: Call) -> int:
        return (
            CLUSTER_OPERATIONS if self._rights is None else cluster_operations(call, self._rights)
        )

    def _with_operations(self, call: Call, topic: metadata.TopicResult) -> metadata.TopicResult:
        # Of topics that are not there as well, as in Kafka; but not where names are hidden.
        is_shown = bool(topic.name) and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if call.request.include_topic_authorized_operations and is_shown:
            assert topic.name is not None, "known"
            topic.topic_authorized_operations = (
                TOPIC_OPERATIONS
                if self._rights is None
                else self._rights.authorizer.operations(call.peer, ResourceType.TOPIC, topic.name)
            )
        return topic

    def _topics(
        self, call: Call, view: _View, turn: Turn
    ) -> Generator[None, None, Iterable[Callable[[], metadata.TopicResult | EncodedElement]]]:
        """What gives each topic that is asked for, once."""
        request: metadata.MetadataRequest = call.request
        if _asks_for_all(call) or request.topics is None:
            names = view.names()
            if self._rights is not None:
                names = yield from visible(call, self._rights, DESCRIBE_TOPIC, names, str)
            return (partial(view.known, name) for name in names)
        may_create = request.allow_auto_topic_creation and self._create is not None
        asked: dict[tuple[str | None, bytes], None] = {}
        for topic in request.topics:
            # By its id, whatever name stands beside it: with Java's client that is an empty one.
            name = topic.name if topic.topic_id == NO_TOPIC_ID else None
            asked[name, topic.topic_id] = None
            if turn.is_over():
                yield
        return (
            partial(self._by_id, call, view, topic_id)
            if name is None
            else partial(self._by_name, call, view, name, may_create=may_create)
            for name, topic_id in asked
        )

    def _by_id(
        self, call: Call, view: _View, topic_id: bytes
    ) -> metadata.TopicResult | EncodedElement:
        """An id is no secret; the name behind it is, to those who may not describe it."""
        if self._rights is not None and view.version >= LOOKUP_BY_ID_SINCE:
            name = view.snapshot.names.get(topic_id)
            if name is not None and not self._rights.may(call, DESCRIBE_TOPIC, name):
                result = _unknown(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                result.topic_id = topic_id
                return result
        return view.by_id(topic_id)

    def _may_create(self, call: Call, name: str) -> bool:
        rights = self._rights
        return (
            rights is None
            or rights.may(call, CREATE_CLUSTER, is_told=False)
            or rights.may(call, CREATE_TOPIC, name)
        )

    def _by_name(
        self, call: Call, view: _View, name: str, *, may_create: bool
    ) -> metadata.TopicResult | EncodedElement:
        # Before it is looked for: who may not describe it is not told whether it exists.
        if self._rights is not None and not self._rights.may(call, DESCRIBE_TOPIC, name):
            return _hidden(name)
        if name in view.snapshot.topics:
            return view.known(name)
        if topic_problem(name) is not None:
            return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not self._cache.is_whole:
            return _unknown(name, ErrorCode.LEADER_NOT_AVAILABLE)
        if not may_create or self._create is None or name in NOT_SERVED:
            return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not self._may_create(call, name):
            return _hidden(name)
        view.created += bool(self._create(name))
        return _unknown(name, self._creation_answer(name))


async def wait_for_nodes(cache: MetadataCache, call: Call) -> None:
    """On a node that has just started, until there are nodes to name; for PATIENCE_S at most.

    A client that asks for nodes and is told of none cannot go on (Metadata, DescribeCluster):
    then the connection is closed behind the answer. librdkafka's AdminClient (2.16) otherwise waits
    until it is closed before it asks again.
    """
    listener = call.peer.listener
    if not await cache.wait_until(lambda snapshot: snapshot.has_nodes(listener), PATIENCE_S):
        asyncio.get_running_loop().call_soon(call.peer.close)


class _View:
    """One snapshot through the eyes of one listener and one version of the request."""

    def __init__(self, snapshot: Snapshot, listener: str, version: int) -> None:
        self.snapshot = snapshot
        self.version = version
        self.created = 0
        """Topics that are being created because they were asked for."""
        self.encoded: EncodedTopics | None = None
        """Known topics are taken from here; None where they are to be objects."""
        self._listener = listener
        self._reachable = frozenset(
            node for node, broker in snapshot.brokers.items() if listener in broker.endpoints
        )
        self._steps = 0

    @property
    def place(self) -> tuple[str, int]:
        """Who is told."""
        return (self._listener, self.version)

    @property
    def nodes(self) -> tuple[frozenset[int], frozenset[int]]:
        """Those that live, and those of them that have the listener."""
        return (frozenset(self.snapshot.brokers), self._reachable)

    def names(self) -> Sequence[str]:
        """All topics in order."""
        if self.encoded is not None:
            return self.encoded.names(self.snapshot)
        return sorted(self.snapshot.topics)

    def take_steps(self) -> int:
        """Partitions that were looked at since this was asked last."""
        steps, self._steps = self._steps, 0
        return steps

    def known(self, name: str) -> metadata.TopicResult | EncodedElement:
        """A known topic, as bytes where it may be."""
        if self.encoded is None:
            return self.topic(name)
        kept = self.encoded.kept(self.snapshot, name)
        if kept is not None:
            return kept
        self._steps += len(self.snapshot.topics[name])
        return self.encoded.keep(self.snapshot, name, self.topic)

    def brokers(self) -> list[metadata.Broker]:
        """The live nodes that have the listener."""
        found = []
        for node in sorted(self._reachable):
            broker = self.snapshot.brokers[node]
            host, port = broker.endpoints[self._listener]
            found.append(metadata.Broker(node_id=node, host=host, port=port, rack=broker.rack))
        return found

    def topic(self, name: str) -> metadata.TopicResult:
        """A known topic."""
        partitions = self.snapshot.topics[name]
        return metadata.TopicResult(
            error_code=ErrorCode.NONE,
            name=name,
            topic_id=self.snapshot.topic_ids.get(name, NO_TOPIC_ID),
            is_internal=is_internal(name),
            partitions=[self._partition(index, partitions[index]) for index in sorted(partitions)],
        )

    def by_id(self, topic_id: bytes) -> metadata.TopicResult | EncodedElement:
        """A topic named by its id alone, which only v12 can answer."""
        name = self.snapshot.names.get(topic_id)
        if self.version < LOOKUP_BY_ID_SINCE:
            return _unknown("", ErrorCode.INVALID_REQUEST)
        if name is None:
            result = _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID)
            result.topic_id = topic_id
            return result
        return self.known(name)

    def _partition(self, index: int, info: PartitionInfo) -> metadata.Partition:
        replicas, isr = self._shown(info.replicas), self._shown(info.isr)
        is_led = info.leader in self.snapshot.brokers
        code = ErrorCode.NONE
        if not is_led:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        elif info.leader not in self._reachable:
            has_code = self.version >= LISTENER_NOT_FOUND_SINCE
            code = ErrorCode.LISTENER_NOT_FOUND if has_code else ErrorCode.LEADER_NOT_AVAILABLE
        elif len(replicas) < len(info.replicas) or len(isr) < len(info.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return metadata.Partition(
            error_code=code,
            partition_index=index,
            leader_id=info.leader if is_led and info.leader in self._reachable else NO_LEADER,
            leader_epoch=info.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=[
                node for node in info.replicas if node in info.offline or not self._is_live(node)
            ],
        )

    def _is_live(self, node: int) -> bool:
        return node in self._reachable

    def _shown(self, nodes: Sequence[int]) -> list[int]:
        """All of them; in v0, whose clients knew only live ones, those that are."""
        return [node for node in nodes if self.version > 0 or node in self._reachable]


def _asks_for_all(call: Call) -> bool:
    """Whether every topic is meant; in v0 by an empty list."""
    asked = call.request.topics
    return asked is None or (call.version == 0 and not asked)


def controller_id(snapshot: Snapshot) -> int:
    """The controller if its node is live, else -1."""
    known = snapshot.controller_id
    return NO_CONTROLLER if known is None or known not in snapshot.brokers else known


def _hidden(name: str) -> metadata.TopicResult:
    """Nothing of it is told, not even whether it is one of the node's own."""
    result = _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    result.is_internal = False
    return result


def _unknown(name: str | None, code: ErrorCode) -> metadata.TopicResult:
    return metadata.TopicResult(
        error_code=code,
        name=name,
        is_internal=name is not None and is_internal(name),
        partitions=[],
    )
