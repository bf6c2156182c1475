"""A cluster as a client sees it: who serves what, a connection to each, and calls that are retried.

Source: coordinator.md section 1.9 (what an error asks of a client); protocol.md section 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, find_coordinator, offset_fetch
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, Topic

from .config import ClientConfig
from .connection import Connection
from .errors import Disconnected, KafkaError, RequestTimedOut, known_code, raise_for
from .retry import Attempts, Remedy, remedy

Codes = Callable[[Any], Iterable[int]]
"""The error codes in an answer that decide whether the call is tried again."""

_GROUP: Final = 0
_VERSION_MAX: Final = {
    fetch.FetchRequest: 12,
    find_coordinator.FindCoordinatorRequest: 3,
    MetadataRequest: 12,
    offset_fetch.OffsetFetchRequest: 7,
}
"""Where later versions say the same in another shape: topics by id, several groups at once."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Node(NamedTuple):
    """A broker and where its clients find it."""

    id: int
    host: str
    port: int


class Cluster:
    """Routes requests to the broker that serves them, and tries again where that may help.

    ``bootstrap`` is ``host:port`` or several with commas; the first that answers tells the rest.
    A first contact that fails everywhere is told at once, later failures are retried within
    ``config.api_timeout_ms``. Use from one loop; close it, or use it in ``async with``.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: ClientConfig | None = None,
        *,
        random: Random | None = None,
    ) -> None:
        self.config = config or ClientConfig()
        self._bootstrap = parse_addresses(bootstrap)
        self._random = random or Random()  # noqa: S311 - spreads retries, keeps no secret
        self._nodes: dict[int, Node] = {}
        self._controller: int | None = None
        self._coordinators: dict[str, Node] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """What a broker says of ``topics`` (None: all of them); nothing is created by asking.

        Codes of single topics are left in the answer. Raises KafkaError.
        """
        wanted = None
        if topics is not None:
            wanted = [Topic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: MetadataResponse = await self.to_any(request)
        return answer

    async def nodes(self) -> list[Node]:
        """Every broker that is up, in the order of their ids."""
        await self.metadata([])
        return sorted(self._nodes.values())

    async def to_any(self, message: Any, codes: Codes | None = None) -> Any:
        """Ask whichever broker is connected."""
        return await self._retried(self._any, lambda: None, message, codes or _no_codes)

    async def to_node(self, node_id: int, message: Any, codes: Codes | None = None) -> Any:
        """Ask one broker; raises BROKER_NOT_AVAILABLE when the cluster has no such broker."""
        return await self._retried(
            lambda: self._to(node_id), lambda: None, message, codes or _no_codes
        )

    async def to_controller(self, message: Any, codes: Codes) -> Any:
        """Ask the controller, the next one too when it moves meanwhile."""

        def forget() -> None:
            self._controller = None

        return await self._retried(self._controller_connection, forget, message, codes)

    async def to_coordinator(self, group: str, message: Any, codes: Codes) -> Any:
        """Ask the coordinator of ``group``, wherever it moves, while it loads included."""

        def forget() -> None:
            self._coordinators.pop(group, None)

        return await self._retried(lambda: self._coordinator(group), forget, message, codes)

    async def to_leader(self, partition: TopicPartition, message: Any, codes: Codes) -> Any:
        """Ask the leader of ``partition``."""

        def forget() -> None:
            self._leaders.pop(partition, None)

        return await self._retried(lambda: self._leader(partition), forget, message, codes)

    async def ask(self, node_id: int, message: Any) -> Any:
        """Ask one broker once: for callers that know better than to wait."""
        return await self._asked(await self._to(node_id), message)

    async def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The broker that leads each of ``partitions``; those without a leader are left out."""
        partitions = list(partitions)
        unknown = {place.topic for place in partitions if place not in self._leaders}
        if unknown:
            await self.metadata(sorted(unknown))
        return {place: self._leaders[place] for place in partitions if place in self._leaders}

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask again who leads these, before they are used next."""
        for partition in partitions:
            self._leaders.pop(partition, None)

    async def coordinator_of(self, group: str) -> Node:
        """The broker that keeps ``group``; raises KafkaError when there is none now."""
        if group not in self._coordinators:
            await self._find_coordinator(group)
        return self._coordinators[group]

    async def close(self) -> None:
        """Close every connection; calls under way raise Disconnected."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def __aenter__(self) -> Self:
        """The cluster; nothing is connected before the first call."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _retried(
        self,
        route: Callable[[], Awaitable[Connection]],
        forget: Callable[[], None],
        message: Any,
        codes: Codes,
    ) -> Any:
        """One call with its retries: the answer, as soon as none of its codes asks for another."""
        clock = asyncio.get_running_loop().time
        attempts = Attempts(self.config, self._random, clock())
        while True:
            try:
                answer = await self._asked(await route(), message)
                step, why = remedy(known_code(code) for code in codes(answer))
                if step is Remedy.GIVE_UP:
                    return answer
                failure = KafkaError(why)
            except KafkaError as error:
                step, why = remedy([error.code])
                if isinstance(error, RequestTimedOut):
                    step = Remedy.LOOK_AGAIN  # the broker hangs: perhaps another serves this now
                if step is Remedy.GIVE_UP or isinstance(error, Unreachable):
                    raise
                failure = error
            if step is Remedy.LOOK_AGAIN:
                forget()
            pause_s = attempts.pause_after(why, clock())
            if pause_s is None:
                raise failure
            await asyncio.sleep(pause_s)

    async def _asked(self, connection: Connection, message: Any) -> Any:
        version = connection.version_of(type(message), _VERSION_MAX.get(type(message)))
        answer = await connection.request(message, version)
        if isinstance(answer, MetadataResponse):
            self._learn(answer)
        return answer

    async def _controller_connection(self) -> Connection:
        if self._controller is None:
            await self._asked(await self._any(), MetadataRequest(topics=[]))
        if self._controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self._to(self._controller)

    async def _coordinator(self, group: str) -> Connection:
        node = await self.coordinator_of(group)
        return await self._connected((node.host, node.port))

    async def _leader(self, partition: TopicPartition) -> Connection:
        if partition not in self._leaders:
            await self._learn_leader(partition)
        return await self._to(self._leaders[partition])

    async def _find_coordinator(self, group: str) -> None:
        request = find_coordinator.FindCoordinatorRequest(key=group, key_type=_GROUP)
        found = await self._asked(await self._any(), request)
        raise_for(found.error_code, found.error_message)
        self._coordinators[group] = Node(found.node_id, found.host, found.port)

    async def _learn_leader(self, partition: TopicPartition) -> None:
        request = MetadataRequest(
            topics=[Topic(name=partition.topic)], allow_auto_topic_creation=False
        )
        answer: MetadataResponse = await self._asked(await self._any(), request)
        raise_for(answer.topics[0].error_code, partition.topic)
        found = {each.partition_index: each for each in answer.topics[0].partitions}
        where = f"{partition.topic}-{partition.partition}"
        if partition.partition not in found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where)
        if partition not in self._leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, where)

    def _learn(self, answer: MetadataResponse) -> None:
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in answer.brokers
        }
        self._controller = answer.controller_id if answer.controller_id >= 0 else None
        for topic in answer.topics:
            for each in topic.partitions:
                if topic.name is not None and each.leader_id >= 0:
                    place = TopicPartition(topic.name, each.partition_index)
                    self._leaders[place] = each.leader_id

    async def _to(self, node_id: int) -> Connection:
        if node_id not in self._nodes:
            await self._asked(await self._any(), MetadataRequest(topics=[]))
        if node_id not in self._nodes:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {node_id} is up")
        node = self._nodes[node_id]
        return await self._connected((node.host, node.port))

    async def _any(self) -> Connection:
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        known = [(node.host, node.port) for node in self._nodes.values()]
        failures = []
        for address in [*known, *self._bootstrap]:
            try:
                return await self._connected(address)
            except Disconnected as error:
                failures.append(error.message)
        raise (Disconnected if known else Unreachable)("; ".join(failures))

    async def _connected(self, address: tuple[str, int]) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.is_closed:
                connection = await Connection.open(
                    *address,
                    client_id=self.config.client_id,
                    timeout_ms=self.config.connect_timeout_ms,
                    sasl=self.config.sasl,
                )
                self._connections[address] = connection
            return connection


class Unreachable(Disconnected):
    """No broker answered at any of the addresses we were given: most likely they are wrong."""


def parse_addresses(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """``host:port`` pairs from text with commas, or from a list of such; ``[::1]:9092`` too.

    Raises ValueError naming the part that is no address.
    """
    words = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    addresses = []
    for word in filter(None, (word.strip() for word in words)):
        host, colon, port = word.rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{word} is no host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no host:port given")
    return addresses


def _no_codes(answer: Any) -> Iterable[int]:
    return ()
