"""A node of ours and one of Apache Kafka with the same entries, users and topics, side by side.

Both stand on one ZooKeeper, each below a chroot of its own; the entries are there before either
starts, written as ``protocol/zookeeper/acl_znodes.py`` has them. Users log in by PLAIN.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol import api
from barnabas.protocol.acl import Acl, AclBinding, ResourcePattern
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.frame import parse_response_header, request_frame
from barnabas.protocol.messages import (
    create_topics,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.zookeeper import acl_znodes
from benchmarks.apache_kafka import kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.server_process import ServerProcess
from tests.harness import znodes
from tests.harness.deployments import SMALL_JVM
from tests.harness.needs import apache_kafka_jars
from tests.harness.raw_connection import Closed, RawConnection
from tests.harness.waiting import eventually

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRET: Final = "rights-compared"
NODE_USER: Final = "barnabas"
ROOT_USER: Final = "root"
CLIENT_ID: Final = "compared"
WAIT_S: Final = 120.0


class Refused(Exception):  # noqa: N818 - says what happened
    """A login that was not taken; the code."""


class Session:
    """One connection, logged in where a user is named."""

    def __init__(
        self, address: tuple[str, int], user: str | None = None, password: str | None = None
    ) -> None:
        self._link = RawConnection(address, WAIT_S)
        self._number = 0
        if user is not None:
            try:
                self._log_in(user, password or user)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close at once."""
        self._link.close()

    def ask(self, request: Any, version: int) -> Any:
        """The answer, decoded. Raises Closed."""
        spec = api.spec_of(type(request))
        frame = self.ask_raw(int(spec.key), version, encode(request, version))
        header = api.response_header_version(spec.key, version)
        _, start = parse_response_header(frame, header)
        return decode(spec.response, version, frame, start)

    def ask_raw(self, key: int, version: int, body: bytes) -> bytes:
        """The whole frame of an answer, without its length. Raises Closed."""
        self._number += 1
        self._link.send(request_frame(key, version, self._number, CLIENT_ID, body))
        return self._link.receive()

    def _log_in(self, user: str, password: str) -> None:
        hello = self.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if hello.error_code:
            raise Refused(hello.error_code)
        token = f"\0{user}\0{password}".encode()
        done = self.ask(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token), 0)
        if done.error_code:
            raise Refused(done.error_code)


@dataclass(frozen=True)
class Listeners:
    """Ports of one server: open to all, for users, for nodes."""

    everybody: int
    users: int
    nodes: int


@dataclass
class Server:
    """One of the two."""

    name: str
    process: ServerProcess
    listeners: Listeners
    zookeeper: str

    def as_user(self, user: str) -> Session:
        """A connection to the users' listener."""
        return Session((LOOPBACK, self.listeners.users), user)

    def before_login(self) -> Session:
        """One to the users' listener on which nobody has logged in."""
        return Session((LOOPBACK, self.listeners.users))

    def as_stranger(self) -> Session:
        """One to the listener that asks for no login."""
        return Session((LOOPBACK, self.listeners.everybody))

    def as_node(self) -> Session:
        """One to the nodes' listener, with the proof of a node."""
        return Session((LOOPBACK, self.listeners.nodes), NODE_USER, SECRET)

    def as_user_among_nodes(self, user: str) -> Session:
        """A user on the nodes' listener. Raises Refused or Closed."""
        return Session((LOOPBACK, self.listeners.nodes), user)


def write_entries(hosts: str, bindings: Iterable[AclBinding], *, is_noted: bool = False) -> None:
    """Put entries where both read them; ``is_noted`` tells servers that run already."""
    by_pattern: dict[ResourcePattern, set[Acl]] = {}
    for pattern, acl in bindings:
        by_pattern.setdefault(pattern, set()).add(acl)
    with znodes.session(hosts) as client:
        for path in acl_znodes.PERSISTENT_PATHS:
            client.ensure_path(path)
        for pattern, acls in by_pattern.items():
            path = acl_znodes.resource_path(pattern)
            data = acl_znodes.acls_to_json(acls)
            if client.exists(path):
                client.set(path, data)
            else:
                client.create(path, data)
            if is_noted:
                prefix = f"{acl_znodes.CHANGES[pattern.pattern_type]}/{acl_znodes.CHANGE_PREFIX}"
                client.create(prefix, acl_znodes.change_to_json(pattern), sequence=True)


@contextlib.contextmanager
def compared_servers(
    directory: Path, users: Collection[str], bindings: Collection[AclBinding]
) -> Iterator[tuple[Server, Server]]:
    """Ours and Kafka's; both have topic ``t`` with a record, group ``g`` with an offset of it."""
    jars = apache_kafka_jars()
    # Twenty of its ticks are the longest session: both are granted the 18 s that they ask for.
    with EmbeddedZooKeeper(tick_ms=2000) as zookeeper, contextlib.ExitStack() as stack:
        servers = []
        for name in ("ours", "kafka"):
            with znodes.session(zookeeper.hosts) as client:
                client.ensure_path(f"/{name}")
            hosts = f"{zookeeper.hosts}/{name}"
            write_entries(hosts, bindings)
            listeners = Listeners(*free_ports(3))
            settings = _settings(listeners, users, is_ours=name == "ours")
            where = directory / name
            if name == "ours":
                process = barnabas_node(where, hosts, settings=settings)
            else:
                process = kafka_node(jars, where, hosts, settings=settings, jvm_flags=SMALL_JVM)
            process.launch()
            stack.callback(process.stop)
            servers.append(Server(name, process, listeners, hosts))
        for server in servers:
            server.process.wait_until_listening()
            _fill(server)
        yield servers[0], servers[1]


def _settings(listeners: Listeners, users: Collection[str], *, is_ours: bool) -> Mapping[str, str]:
    logins = " ".join(f'user_{name}="{name}"' for name in (ROOT_USER, *users))
    shared = {
        "port": str(listeners.everybody),
        "listeners": (
            f"PLAINTEXT://{LOOPBACK}:{listeners.everybody},USERS://{LOOPBACK}:{listeners.users}"
            f",INTERNAL://{LOOPBACK}:{listeners.nodes}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT"
        ),
        "inter.broker.listener.name": "INTERNAL",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f"{PLAIN} {logins};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ROOT_USER}",
        "connection.failed.authentication.delay.ms": "0",
        # One connection for each user serves many tests, some of which it is not asked in.
        "connections.max.idle.ms": "3600000",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    if is_ours:
        return {**shared, "cluster.secret": SECRET, "beacon.timeout.ms": "5000"}
    login = (
        f'{PLAIN} username="{NODE_USER}" password="{SECRET}" user_{NODE_USER}="{SECRET}" {logins};'
    )
    return {
        **shared,
        "super.users": f"User:{ROOT_USER};User:{NODE_USER}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": login,
        "zookeeper.session.timeout.ms": "18000",
    }


def _fill(server: Server) -> None:
    """What questions are about."""
    with eventually(lambda: list(_opened(server)), within_s=WAIT_S, what=f"{server.name} lets in")[
        0
    ] as session:
        eventually(lambda: _made(session, "t"), what="the topic is made")
        eventually(lambda: _is_led(session, "t"), what="the topic is led")
        eventually(lambda: _committed(session), what="the offset is committed")
        eventually(lambda: _has_transactions(session), what="transactions are served")
        records = bytes(build_batch([(b"k", b"v")], timestamp_ms=1))
        partition = produce.Partition(index=0, records=records)
        topic = produce.Topic(name="t", partition_data=[partition])
        sent = session.ask(
            produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9
        )
        assert not sent.responses[0].partition_responses[0].error_code


def _opened(server: Server) -> Iterator[Session]:
    with contextlib.suppress(OSError, Closed, Refused):
        yield server.as_user(ROOT_USER)


def _made(session: Session, name: str) -> bool:
    kept = create_topics.Config(name="retention.ms", value="-1")
    """Records of the questions are as old as time."""
    topic = create_topics.Topic(name=name, num_partitions=1, replication_factor=1, configs=[kept])
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return session.ask(request, 4).topics[0].error_code in (0, 36)


def _is_led(session: Session, name: str) -> bool:
    request = metadata.MetadataRequest(topics=[metadata.Topic(name=name)])
    found = session.ask(request, 8).topics[0]
    return not found.error_code and bool(found.partitions)


def _committed(session: Session) -> bool:
    session.ask(find_coordinator.FindCoordinatorRequest(key="g"), 1)
    partition = offset_commit.Partition(partition_index=0, committed_offset=7)
    topic = offset_commit.Topic(name="t", partitions=[partition])
    answer = session.ask(offset_commit.OffsetCommitRequest(group_id="g", topics=[topic]), 6)
    return not answer.topics[0].partitions[0].error_code


def _has_transactions(session: Session) -> bool:
    session.ask(find_coordinator.FindCoordinatorRequest(key="x", key_type=1), 1)
    wanted = init_producer_id.InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=60_000
    )
    return not session.ask(wanted, 1).error_code
