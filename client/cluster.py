"""Routes requests to the broker that serves them: metadata, connections, retries.

Source: docs/spec/coordinator.md §1.9 (what an error asks of a client); docs/spec/protocol.md §2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeGuard

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    describe_groups,
    fetch,
    offset_fetch,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, Topic

from .client_config import ClientConfig
from .connection.answer_memory import AnswerMemory
from .connection.connection import Connection
from .connection.sasl_login import SaslLogin
from .errors import (
    ClosedByPeer,
    Disconnected,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
    known_code,
    raise_for,
)
from .retry import Attempts, Remedy, remedy
from .tls.contexts import ClientTls
from .topology import Node, TopicPartition, Topology
from .turns import Turns

__all__ = [
    "AnswerMemory", "Cluster", "Codes", "Node", "TopicPartition", "Unreachable", "parse_addresses",
]  # fmt: skip

Codes = Callable[[Any], Iterable[int]]
"""The error codes in an answer that decide whether the call is tried again."""

ConnectionKey = tuple[str, int, str]
"""Host, port, and what the connection is for: who may be kept waiting has one of its own."""

GROUP: Final = 0
TRANSACTION: Final = 1
"""What a coordinator is asked for: a group, or a transactional id."""
_TYPES_SINCE: Final = 1
_KEYS_SINCE: Final = 4
_KEYS_AT_ONCE: Final = 500
_CLOSED_MAX: Final = 3
"""So many first contacts in a row that end without an answer are no accident."""
_VERSION_MAX: Final = {
    add_partitions_to_txn.AddPartitionsToTxnRequest: 3,
    describe_groups.DescribeGroupsRequest: 5,
    fetch.FetchRequest: 12,
    FindCoordinatorRequest: 3,
    MetadataRequest: 12,
    offset_fetch.OffsetFetchRequest: 7,
}
"""Where later versions say the same in another shape: topics by id, several groups at once, an
error for groups that do not exist.

AddPartitionsToTxn from version 4 on is what brokers ask each other (KIP-890).
"""


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
        login: SaslLogin | None = None,
    ) -> None:
        """``login`` stands for the one in ``config``; raises ConfigError for half of a login."""
        self.config = config or ClientConfig()
        self._login = login or SaslLogin.of(self.config)
        self._bootstrap = parse_addresses(bootstrap)
        self.random = random or Random()  # noqa: S311 - spreads retries, keeps no secret
        self.topology = Topology()
        """What brokers told last: read it without waiting, mistrust it."""
        self._coordinators: dict[tuple[int, str], Node] = {}
        self._connections: dict[ConnectionKey, Connection] = {}
        self._opening: dict[ConnectionKey, asyncio.Lock] = {}
        self._learnt: MetadataResponse | None = None
        """The last answer of :meth:`all_topics`: what it says of topics is known."""
        self._is_closed = False
        self._closed_at_once = 0
        self._tls = ClientTls(self.config) if self.config.speaks_tls else None

    def set_bootstrap(self, bootstrap: str | Sequence[str]) -> None:
        """Other addresses for when no broker that is known answers; they replace the first ones."""
        self._bootstrap = parse_addresses(bootstrap)

    async def metadata(
        self, topics: Sequence[str] | None = None, *, create: bool = False
    ) -> MetadataResponse:
        """What a broker says of ``topics`` (None: all of them); ``create`` those it lacks.

        Codes of single topics are left in the answer. Raises KafkaError.
        """
        wanted = None
        if topics is not None:
            wanted = [Topic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer: MetadataResponse = await self.to_any(request)
        return answer

    async def all_topics(self, memory: AnswerMemory) -> MetadataResponse:
        """As :meth:`metadata` of all topics, for who asks often: see :class:`AnswerMemory`.

        The answer is the same object as the last time where nothing has changed.
        """
        answer: MetadataResponse = await self._retried(
            self._any_connection, lambda: None, MetadataRequest(topics=None,
            allow_auto_topic_creation=False), _no_codes, memory=memory,
        )  # fmt: skip
        return answer

    async def nodes(self) -> list[Node]:
        """Every broker that is up, in the order of their ids."""
        await self.metadata([])
        return sorted(self.topology.nodes.values())

    async def to_any(self, message: Any, codes: Codes | None = None) -> Any:
        """Ask whichever broker is connected."""
        return await self._retried(self._any_connection, lambda: None, message, codes or _no_codes)

    async def to_node(
        self,
        node_id: int,
        message: Any,
        codes: Codes | None = None,
        *,
        memory: AnswerMemory | None = None,
    ) -> Any:
        """Ask one broker; raises BROKER_NOT_AVAILABLE when the cluster has no such broker."""
        return await self._retried(
            lambda: self.connection_to(node_id), lambda: None, message, codes or _no_codes,
            memory=memory,
        )  # fmt: skip

    async def to_controller(self, message: Any, codes: Codes) -> Any:
        """Ask the controller, the next one too when it moves meanwhile."""

        def forget() -> None:
            self.topology.controller = None

        return await self._retried(self._controller_connection, forget, message, codes)

    async def to_coordinator(
        self, group: str, message: Any, codes: Codes, *, version_max: int | None = None
    ) -> Any:
        """Ask the coordinator of ``group``, wherever it moves, while it loads included.

        ``version_max`` is for who fills in what later versions than our usual ones have.
        """

        return await self._retried(
            lambda: self.coordinator_connection(group),
            lambda: self.forget_coordinator(group),
            message,
            codes,
            version_max=version_max,
        )

    async def to_transaction_coordinator(
        self, transactional_id: str, message: Any, codes: Codes
    ) -> Any:
        """Ask the coordinator of a transactional id, wherever it moves, while it loads included."""

        return await self._retried(
            lambda: self.coordinator_connection(transactional_id, TRANSACTION),
            lambda: self.forget_coordinator(transactional_id, TRANSACTION),
            message,
            codes,
        )

    async def to_leader(self, partition: TopicPartition, message: Any, codes: Codes) -> Any:
        """Ask the leader of ``partition``."""

        return await self._retried(
            lambda: self._leader_connection(partition),
            lambda: self.forget_leaders([partition]),
            message,
            codes,
        )

    async def ask(
        self, node_id: int, message: Any, *, channel: str = "", timeout_ms: int | None = None
    ) -> Any:
        """Ask one broker once: for callers that know better than to wait.

        Calls on one ``channel`` are answered in their order; a fetch that waits for data or a
        group that waits for its members belongs on a channel where nobody else is in a hurry.
        """
        return await self._sent(await self.connection_to(node_id, channel), message, timeout_ms)

    async def ask_coordinator(
        self, group: str, message: Any, *, channel: str = "", timeout_ms: int | None = None
    ) -> Any:
        """Ask the coordinator of ``group`` once; see :meth:`ask`."""
        connection = await self.coordinator_connection(group, channel=channel)
        return await self._sent(connection, message, timeout_ms)

    async def connection_to(self, node_id: int, channel: str = "") -> Connection:
        """An open connection to one broker, for requests that are pipelined."""
        nodes = self.topology.nodes
        if node_id not in nodes:
            await self._sent(await self._any_connection(), MetadataRequest(topics=[]))
            nodes = self.topology.nodes
        if node_id not in nodes:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {node_id} is up")
        return await self._connection((nodes[node_id].host, nodes[node_id].port, channel))

    async def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The broker that leads each of ``partitions``; those without a leader are left out."""
        partitions = list(partitions)
        known = self.topology.leaders
        unknown = {
            topic_partition.topic for topic_partition in partitions if topic_partition not in known
        }
        if unknown:
            await self.metadata(sorted(unknown))
        return {
            topic_partition: known[topic_partition]
            for topic_partition in partitions
            if topic_partition in known
        }

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask again who leads these, before they are used next."""
        self.topology.forget_leaders(partitions)

    async def coordinator_of(self, key: str, key_type: int = GROUP) -> Node:
        """The broker that keeps a group, or the transactions of an id (TRANSACTION).

        Raises KafkaError when there is none now.
        """
        if (key_type, key) not in self._coordinators:
            await self._find_coordinator(key, key_type)
        return self._coordinators[key_type, key]

    async def coordinator_connection(
        self, key: str, key_type: int = GROUP, channel: str = ""
    ) -> Connection:
        """An open connection to the coordinator of ``key``."""
        node = await self.coordinator_of(key, key_type)
        return await self._connection((node.host, node.port, channel))

    async def learn_coordinators(self, groups: Iterable[str]) -> dict[str, Node]:
        """The brokers that keep ``groups``, with one question for many of them.

        Left out is who has none now, and everybody where brokers are asked one by one. Raises
        KafkaError when none can be asked.
        """
        wanted = list(groups)
        known = self._coordinators
        unknown = [group for group in wanted if (GROUP, group) not in known]
        for start in range(0, len(unknown), _KEYS_AT_ONCE):
            connection = await self._any_connection()
            version = connection.version_of(FindCoordinatorRequest)
            if version < _KEYS_SINCE:
                break
            request = FindCoordinatorRequest(
                key_type=GROUP, coordinator_keys=unknown[start : start + _KEYS_AT_ONCE]
            )
            answer = await connection.request(request, version, self.config.request_timeout_ms)
            for found in answer.coordinators:
                if not found.error_code:
                    known[GROUP, found.key] = Node(found.node_id, found.host, found.port)
        return {group: known[GROUP, group] for group in wanted if (GROUP, group) in known}

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Find out again who coordinates ``key`` before it is asked next."""
        self._coordinators.pop((key_type, key), None)

    async def close(self) -> None:
        """Close every connection; calls under way raise Disconnected."""
        self._is_closed = True
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
        *,
        version_max: int | None = None,
        memory: AnswerMemory | None = None,
    ) -> Any:
        """One call with its retries: the answer, as soon as none of its codes asks for another.

        ``route`` is asked anew each time, since what it found last may be what failed. A first
        contact that fails everywhere is raised at once: a wrong address does not become right.
        """
        clock = asyncio.get_running_loop().time
        attempts = Attempts(self.config, self.random, clock())
        while True:
            try:
                answer = await self._sent(
                    await route(), message, version_max=version_max, memory=memory
                )
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
                if self._is_never_served(error):
                    raise Unreachable([error]) from error
            if step is Remedy.LOOK_AGAIN:
                forget()
            pause_s = attempts.backoff_after(why, clock())
            if pause_s is None:
                raise failure
            await asyncio.sleep(pause_s)

    def _is_never_served(self, error: KafkaError) -> TypeGuard[ClosedByPeer]:
        """Whether brokers accepted connections, and closed each before any said who is there.

        So does one that asks for a login and is given none. A broker that just stops does it once.
        """
        if not isinstance(error, ClosedByPeer) or self.topology.nodes:
            return False
        self._closed_at_once += 1
        return self._closed_at_once >= _CLOSED_MAX

    async def _sent(
        self,
        connection: Connection,
        message: Any,
        timeout_ms: int | None = None,
        *,
        version_max: int | None = None,
        memory: AnswerMemory | None = None,
    ) -> Any:
        version = version_for(connection, type(message), version_max)
        bound_ms = timeout_ms or self.config.request_timeout_ms
        answer = await connection.request(message, version, bound_ms, memory=memory)
        if isinstance(answer, MetadataResponse):
            await self._learn(answer, in_turns=memory is not None)
        return answer

    async def _learn(self, answer: MetadataResponse, *, in_turns: bool) -> None:
        if not in_turns:
            self.topology.learn(answer)
            return
        self.topology.learn_nodes(answer)
        if answer is self._learnt:
            return
        turns = Turns()
        for topic in answer.topics:
            self.topology.learn_topics([topic])
            await turns.pause()
        self._learnt = answer

    async def _controller_connection(self) -> Connection:
        if self.topology.controller is None:
            await self._sent(await self._any_connection(), MetadataRequest(topics=[]))
        if self.topology.controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.connection_to(self.topology.controller)

    async def _leader_connection(self, partition: TopicPartition) -> Connection:
        if partition not in self.topology.leaders:
            await self._learn_leader(partition)
        return await self.connection_to(self.topology.leaders[partition])

    async def _find_coordinator(self, key: str, key_type: int) -> None:
        connection = await self._any_connection()
        # Version 0 has no type: it would name the coordinator of the group of that name.
        if version_for(connection, FindCoordinatorRequest) < _TYPES_SINCE and key_type != GROUP:
            raise UnsupportedVersion(f"{connection.peer} is older than Kafka 0.11")
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        found = await self._sent(connection, request)
        raise_for(found.error_code, found.error_message)
        self._coordinators[key_type, key] = Node(found.node_id, found.host, found.port)

    async def _learn_leader(self, partition: TopicPartition) -> None:
        request = MetadataRequest(
            topics=[Topic(name=partition.topic)], allow_auto_topic_creation=False
        )
        answer: MetadataResponse = await self._sent(await self._any_connection(), request)
        raise_for(answer.topics[0].error_code, partition.topic)
        found = {partition.partition_index: partition for partition in answer.topics[0].partitions}
        where = f"{partition.topic}-{partition.partition}"
        if partition.partition not in found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where)
        if partition not in self.topology.leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, where)

    async def _any_connection(self) -> Connection:
        for (_, _, channel), connection in self._connections.items():
            if not (connection.is_closed or connection.is_due or channel):
                return connection
        known = [(node.host, node.port) for node in self.topology.nodes.values()]
        failures: list[Disconnected] = []
        for host, port in [*known, *self._bootstrap]:
            try:
                return await self._connection((host, port, ""))
            except Disconnected as error:
                failures.append(error)
        if known:
            raise Disconnected("; ".join(failure.message for failure in failures))
        raise Unreachable(failures)

    async def _connection(self, key: ConnectionKey) -> Connection:
        # One lock a key: two calls at once must not open two connections, of which one would be
        # forgotten and never closed.
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.is_due:
                await connection.close()
            if connection is None or connection.is_closed:
                if self._is_closed:
                    raise Disconnected("this client was closed")
                connection = await Connection.open(
                    key[0],
                    key[1],
                    client_id=self.config.client_id,
                    timeout_ms=self.config.connect_timeout_ms,
                    sasl=self._login,
                    tls=self._tls.context() if self._tls is not None else None,
                )
                self._connections[key] = connection
                # Closed while it was opened: whoever closed the cluster did not see this one.
                if self._is_closed:
                    await connection.close()
            return connection


class Unreachable(Disconnected):
    """No broker answered at any of the addresses we were given: most likely they are wrong."""

    def __init__(self, failures: Sequence[Disconnected]) -> None:
        self.failures = failures
        """Of each address, in their order."""
        super().__init__("; ".join(failure.message for failure in failures))


def parse_addresses(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """``host:port`` pairs from text with commas, or from a list of such; ``[::1]:9092`` too.

    Raises ValueError naming the part that is no address.
    """
    words = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    addresses = []
    for word in filter(None, (word.strip() for word in words)):
        host, colon, port = word.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{word} is no host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no host:port given")
    return addresses


def version_for(connection: Connection, message_class: type, most: int | None = None) -> int:
    """The version of a request that we speak on this connection; raises UnsupportedVersion.

    Not above ``most``; None for the highest whose shape is the usual one.
    """
    return connection.version_of(message_class, most or _VERSION_MAX.get(message_class))


def _no_codes(answer: Any) -> Iterable[int]:
    return ()
