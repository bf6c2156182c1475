"""A listener that speaks TLS: who gets in, who does not, and what it costs (S7, S14 to S19)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from barnabas.broker.handlers.call import Call
from barnabas.broker.net import connection_timeouts, tls_acceptor
from barnabas.broker.net.connection_quotas import ConnectionQuotas
from barnabas.broker.net.limits import STALL_S
from barnabas.broker.quota.ip_connection_rates import IpConnectionRates
from barnabas.broker.quota.rate import Windows
from barnabas.broker.security.ssl_contexts import ListenerTls
from barnabas.broker.settings.listener_quotas import UNLIMITED, ListenerQuota
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.broker.settings.ssl_settings import SslSettings
from barnabas.broker.storage.files import DiskFiles, StorageError
from barnabas.broker.storage.segment.file_slice import FileSlice
from barnabas.broker.storage.segment.segment import Segment
from barnabas.client.tls.contexts import client_context
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch, list_groups, produce
from tests.harness.certificates import Authority
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start

LIST: Final = (list_groups.ListGroupsRequest(), 2)
ANSWER_S: Final = 60.0
SIZE: Final = 24 << 20
MARK: Final = b"one record that is told from everything else"


class World:
    """An authority, a node's certificate, and clients of all kinds."""

    def __init__(self) -> None:
        self.authority = Authority()
        self.node = self.authority.issue("node")
        self.user = self.authority.issue("alice", hosts=())
        self.stranger = Authority("other").issue("alice", hosts=())

    def tls(self, client_auth: str = "none", **others: Any) -> ListenerTls:
        return ListenerTls("TEST", self.settings(client_auth, **others), is_internal=False)

    def settings(self, client_auth: str = "none", **others: Any) -> SslSettings:
        return SslSettings(
            ssl_keystore_type="PEM",
            ssl_keystore_key=self.node.key_pem(),
            ssl_keystore_certificate_chain=self.node.certificates_pem,
            ssl_truststore_type="PEM",
            ssl_truststore_certificates=self.authority.pem,
            client_auth=client_auth,
            **others,
        )

    def client(self, shows: str = "nothing") -> ssl.SSLContext:
        settings: dict[str, Any] = {
            "ssl_truststore_type": "PEM",
            "ssl_truststore_certificates": self.authority.pem,
        }
        if shows != "nothing":
            issued = self.user if shows == "right" else self.stranger
            settings |= {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": issued.key_pem(),
                "ssl_keystore_certificate_chain": issued.certificates_pem,
            }
        return client_context(TlsSettings(**settings))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
async def bare(start: Start, world: World) -> AsyncIterator[Callable[[], socket.socket]]:
    """Makes sockets that speak no TLS, and closes them."""
    opened: list[socket.socket] = []

    def connect(port: int) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", port))
        opened.append(link)
        link.setblocking(False)
        return link

    yield connect  # type: ignore[misc]
    for link in opened:
        link.close()


async def ended(link: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    loop, found = asyncio.get_running_loop(), b""
    async with asyncio.timeout(ANSWER_S):
        while True:
            try:
                more = await loop.sock_recv(link, 65536)
            except ConnectionError:
                return found
            if not more:
                return found
            found += more


def nobody_is_left(node: ListeningNode) -> bool:
    quotas = node.limits.connection_quotas
    return not quotas.total and not quotas._hosts and not node.listener.connections


async def test_requests_are_served_as_anywhere(start: Start, world: World) -> None:
    node = await start(tls=world.tls())
    client = await node.connect(world.client())
    for _ in range(3):
        assert (await client.ask(*LIST)).throttle_time_ms == 7
    client.send(LIST, LIST, LIST)
    assert [(await client.receive())[0] for _ in range(3)] == [3, 4, 5]
    assert node.listener.tls_handshakes == {"done": 1}
    await client.close()
    await until(lambda: nobody_is_left(node))


@pytest.mark.parametrize(
    ("auth", "shows", "principal"),
    [
        ("none", "right", "User:ANONYMOUS"),
        ("requested", "nothing", "User:ANONYMOUS"),
        ("requested", "right", "User:CN=alice,C=US"),
        ("required", "right", "User:CN=alice,C=US"),
    ],
)
async def test_the_certificate_says_who_the_peer_is(
    start: Start, world: World, auth: str, shows: str, principal: str
) -> None:
    node = await start(tls=world.tls(auth))
    client = await node.connect(world.client(shows))
    await client.ask(*LIST)
    (connection,) = node.listener.connections
    assert connection.principal == principal


async def test_rules_make_the_user_of_a_certificate(start: Start, world: World) -> None:
    tls = world.tls("required", principal_mapping_rules="RULE:^CN=(.*?),C=US$/$1/U")
    node = await start(tls=tls)
    client = await node.connect(world.client("right"))
    await client.ask(*LIST)
    (connection,) = node.listener.connections
    assert connection.principal == "User:ALICE"


async def refused(node: ListeningNode, tls: ssl.SSLContext) -> None:
    """The peer is turned away, at once or at its first read, and its place is given back."""

    async def asked() -> None:
        async with asyncio.timeout(ANSWER_S):
            client = await node.connect(tls)
            await client.ask(*LIST)

    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await asked()
    await until(lambda: nobody_is_left(node))


@pytest.mark.parametrize(
    ("auth", "shows"), [("requested", "foreign"), ("required", "foreign"), ("required", "nothing")]
)
async def test_a_peer_without_a_proper_certificate_is_refused(
    start: Start, world: World, auth: str, shows: str
) -> None:
    node = await start(tls=world.tls(auth))
    await refused(node, world.client(shows))
    assert node.listener.tls_handshakes["failed"] == 1
    assert node.toys.seen == []


@pytest.mark.parametrize(
    "settings",
    [
        {"principal_mapping_rules": "RULE:^CN=bob.*$/bob/"},
        {"principal_mapping_rules": "RULE:.+/*/"},
        {"principal_mapping_rules": "RULE:^.*$//"},
    ],
)
async def test_a_certificate_that_stands_for_nobody_is_refused(
    start: Start, world: World, settings: dict[str, str]
) -> None:
    """S11: no rule matches; and who would be everybody (``*``) in an ACL is nobody (S93)."""
    node = await start(tls=world.tls("required", **settings))
    await refused(node, world.client("right"))
    assert node.toys.seen == []


async def test_names_in_certificates_are_told_in_the_log_and_are_no_labels_of_metrics(
    start: Start, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """S77: a stranger could make as many labels as certificates."""
    node = await start(tls=world.tls("required", principal_mapping_rules="RULE:^CN=bob.*$/bob/"))
    with caplog.at_level("INFO"):
        await refused(node, world.client("right"))
        await refused(node, world.client("foreign"))
    assert "no rule of ssl.principal.mapping.rules matches: CN=alice,C=US" in caplog.text
    assert "TLS handshake failed: certificate refused: " in caplog.text
    assert dict(node.limits.rejection_log.connections) == {
        "no rule of ssl.principal.mapping.rules matches": 1,
        "TLS handshake failed": 1,
    }


async def test_above_the_rate_of_its_address_a_peer_is_closed_without_a_handshake(
    start: Start, world: World, bare: Any
) -> None:
    """S64."""
    node = await start(tls=world.tls())
    # A window of one millisecond is the longest wait.
    node.limits.connection_quotas.address_rates = rates = IpConnectionRates(Windows(11, 0.001))
    rates.replace({"127.0.0.1": 1e-9})
    assert await ended(bare(node.listener.port)) == b""
    await until(lambda: nobody_is_left(node))
    rates.replace({})
    client = await node.connect(world.client())
    await client.ask(*LIST)
    assert node.listener.tls_handshakes == {"done": 1}


async def test_where_nodes_meet_a_certificate_alone_makes_no_node(
    start: Start, world: World
) -> None:
    """S72: whoever has a certificate of the same authority may be a client only."""
    others = {"is_internal": True, "node_principals": {"User:CN=node,C=US"}}
    node = await start(tls=world.tls("required"), **others)
    await refused(node, world.client("right"))
    others["node_principals"] = {"User:CN=alice,C=US"}
    known = await start(tls=world.tls("required"), **others)
    client = await known.connect(world.client("right"))
    await client.ask(*LIST)


@pytest.mark.filterwarnings("ignore:.*TLSv1_1 is deprecated")
async def test_a_client_of_tls_1_1_is_refused(start: Start, world: World) -> None:
    node = await start(tls=world.tls())
    old = world.client()
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    await refused(node, old)


async def test_who_sends_no_tls_is_closed_without_an_answer_and_told_once(
    start: Start, world: World, bare: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """S19: an alert would be read as a length, and have clients allocate 352 MB (KAFKA-4090)."""
    node = await start(tls=world.tls())
    with caplog.at_level("INFO"):
        for hello in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\0\0",
            b"\x80\x2e\x01\0\2",
        ):
            link = bare(node.listener.port)
            link.send(hello)
            assert await ended(link) == b""
    assert caplog.text.count("no TLS sent to a TLS port") == 1
    await until(lambda: nobody_is_left(node))


async def test_a_handshake_of_nonsense_is_refused(start: Start, world: World, bare: Any) -> None:
    node = await start(tls=world.tls())
    link = bare(node.listener.port)
    link.send(b"\x16\x03\x01\x00\x20" + os.urandom(32))
    await ended(link)
    await until(lambda: nobody_is_left(node))
    assert node.listener.tls_handshakes == {"failed": 1}


async def test_a_handshake_that_was_cut_anywhere_leaves_nothing(
    start: Start, world: World, bare: Any
) -> None:
    node = await start(tls=world.tls(), settings=NetworkSettings(max_connection_creation_rate=500))
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = world.client().wrap_bio(down, up, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    whole = up.read()
    for length in range(0, len(whole), 7):
        link = bare(node.listener.port)
        link.send(whole[:length])
        link.close()
    await until(lambda: node.listener.tls_handshakes["failed"] == len(range(0, len(whole), 7)))
    await until(lambda: nobody_is_left(node))
    client = await node.connect(world.client())
    await client.ask(*LIST)


async def test_peers_that_stall_are_gone_in_time_and_hold_nobody_up(
    start: Start, world: World, bare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent ones, ones that send a byte, and ones that begin a handshake; others are served."""
    monkeypatch.setattr(tls_acceptor, "AUTHENTICATION_S", 1.0)
    node = await start(tls=world.tls())
    kinds = (b"", b"\x16", b"\x16\x03\x01\x00\xc8\x01\x00")
    links = [bare(node.listener.port) for _ in kinds for _ in range(20)]
    for number, link in enumerate(links):
        link.send(kinds[number % len(kinds)])
    quotas, handshakes = node.limits.connection_quotas, node.listener.tls_handshakes
    # On a slow machine the first are gone before the last are accepted.
    await until(lambda: quotas.total + handshakes["failed"] == len(links))
    await asyncio.sleep(0)  # the last one's task has looked how long it may take
    # Who goes on is not to be short of time there.
    monkeypatch.setattr(tls_acceptor, "AUTHENTICATION_S", ANSWER_S)
    client = await node.connect(world.client())
    await client.ask(*LIST)
    for link in links:
        assert await ended(link) == b""
    await client.ask(*LIST)
    await client.close()
    await until(lambda: nobody_is_left(node))
    assert node.listener.tls_handshakes == {"done": 1, "failed": len(links)}


async def test_a_peer_that_sends_a_byte_at_a_time_does_not_keep_the_loop_awake(
    start: Start, world: World, bare: Any
) -> None:
    node = await start(tls=world.tls())
    link = bare(node.listener.port)
    link.send(b"\x16")
    await until(lambda: node.limits.connection_quotas.total == 1)
    acceptor = node.listener._acceptor
    assert acceptor is not None
    (task,) = (one for one in acceptor._tasks if "_enter" in repr(one.get_coro()))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not task.done(), "one byte begins no handshake"
    link.close()
    await until(lambda: nobody_is_left(node))


@pytest.mark.parametrize(("waited_s", "left_s"), [(0.0, 10.0), (4.0, 6.0), (30.0, 0.0)])
async def test_proof_and_handshake_have_one_bound_together(
    start: Start, waited_s: float, left_s: float
) -> None:
    """S18: ten seconds from the accept to the proof, in all."""
    asked: list[float] = []

    class Clock:
        def call_later(self, delay: float, *_: object) -> None:
            asked.append(delay)

    node = await start()
    node.listener.loop = Clock()  # type: ignore[assignment]
    timeouts = connection_timeouts.ConnectionTimeouts(node.listener, None)  # type: ignore[arg-type]
    timeouts.start(is_unauthenticated=True, waited_s=waited_s)
    timeouts.start(is_unauthenticated=False, waited_s=waited_s)
    assert asked == [left_s, STALL_S]


async def test_who_proves_nothing_after_its_handshake_is_gone(
    start: Start, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_timeouts, "AUTHENTICATION_S", 0.5)
    node = await start(tls=world.tls(), sasl=terms({"u": "p"}))
    client = await node.connect(world.client())
    async with asyncio.timeout(ANSWER_S):
        assert await client.is_closed()
    await until(lambda: nobody_is_left(node))


async def test_quotas_hold_before_the_handshake(start: Start, world: World, bare: Any) -> None:
    node = await start(tls=world.tls(), settings=NetworkSettings(max_connections_per_ip=1))
    client = await node.connect(world.client())
    await client.ask(*LIST)
    assert await ended(bare(node.listener.port)) == b""
    await client.close()
    await until(lambda: nobody_is_left(node))
    again = await node.connect(world.client())
    await again.ask(*LIST)


async def test_a_listener_that_closes_breaks_handshakes_off(
    start: Start, world: World, bare: Any
) -> None:
    node = await start(tls=world.tls())
    link = bare(node.listener.port)
    await until(lambda: node.limits.connection_quotas.total == 1)
    await node.listener.close()
    assert await ended(link) == b""
    assert nobody_is_left(node)
    with pytest.raises(ConnectionRefusedError):
        bare(node.listener.port)


async def test_other_certificates_are_for_the_connections_that_come_later(
    start: Start, world: World
) -> None:
    """S12: open connections keep theirs."""
    tls = world.tls()
    node = await start(tls=tls)
    before = await node.connect(world.client())
    await before.ask(*LIST)
    other = World()
    settings = other.settings(allow_dn_changes=True)
    tls.use(tls.prepare(settings))
    with pytest.raises(ssl.SSLCertVerificationError):
        await node.connect(world.client())
    after = await node.connect(other.client())
    await after.ask(*LIST)
    await before.ask(*LIST)


def refuse(error: StorageError) -> NoReturn:
    raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


class Shelf:
    """A segment of records; every fetch is answered with the slice that it asks for."""

    def __init__(self, directory: Path) -> None:
        self.content = (MARK + os.urandom(4096 - len(MARK))) * (SIZE // 4096)
        self.segment = Segment.create(DiskFiles(), directory, 0, 0)
        self.segment.append(self.content, 0, 0)

    def fetch(self, call: Call) -> fetch.FetchResponse:
        wanted = call.request.topics[0].partitions[0]
        first, count = wanted.fetch_offset, wanted.partition_max_bytes
        found: Any = FileSlice(self.segment, first, count, refuse)
        topic = fetch.TopicResult(topic="t", partitions=[fetch.PartitionResult(records=found)])
        return fetch.FetchResponse(responses=[topic])


def request(first: int, count: int) -> tuple[fetch.FetchRequest, int]:
    partition = fetch.Partition(fetch_offset=first, partition_max_bytes=count)
    return fetch.FetchRequest(topics=[fetch.Topic(topic="t", partitions=[partition])]), 12


class Wire:
    """Stands between a client and the node, and keeps what passes."""

    def __init__(self, port: int) -> None:
        self.captured = bytearray()
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.ensure_future(self._copy(source, target)))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                self.captured += data
                target.write(data)
                await target.drain()
        except ConnectionError:
            return
        finally:
            target.close()


async def test_no_byte_of_a_record_leaves_in_clear(
    start: Start, world: World, tmp_path: Path
) -> None:
    """S15: sendfile would write to the socket, beside the session: so it did on both loops."""
    node = await start(tls=world.tls())
    shelf = Shelf(tmp_path)
    node.dispatcher.register({ApiKey.FETCH: shelf.fetch})
    wire = Wire(node.listener.port)
    async with wire as port:
        client = await RawClient.open(port, world.client())
        asked = [(0, 1000), (4096, 200_000), (0, SIZE), (8192, SIZE - 8192), (1, 70_000)]
        for first, count in asked:
            client.send(LIST, request(first, count), LIST)
        for number, (first, count) in enumerate(asked):
            assert (await client.receive())[0] == 3 * number
            _, answer = await client.receive()
            found = bytes(answer.responses[0].partitions[0].records)
            assert found == shelf.content[first : first + count]
            assert (await client.receive())[0] == 3 * number + 2
        await client.close()
    assert len(wire.captured) > 2 * SIZE
    assert MARK not in wire.captured
    assert shelf.segment._uses == 0


async def test_a_slow_reader_over_tls_is_given_pieces_and_keeps_nobody_waiting(
    start: Start, world: World, tmp_path: Path
) -> None:
    """Not the whole answer at once: 55 MB of it would lie in memory for each such reader."""
    node = await start(tls=world.tls())
    shelf = Shelf(tmp_path)
    node.dispatcher.register({ApiKey.FETCH: shelf.fetch})
    slow = await node.connect(world.client())
    slow.send(request(0, SIZE), LIST)
    await until(lambda: len(node.listener.connections) == 1)
    (link,) = node.listener.connections
    await until(lambda: link._sender.is_busy and link._sender.is_paused)
    assert 0 < link._sender.sent < SIZE // 2
    assert link._transport.get_write_buffer_size() < 4 << 20
    quick = await node.connect(world.client())
    await quick.ask(*LIST)
    assert node.toys.seen == ["list"], "nothing behind the large answer is served"
    answer = (await slow.receive())[1]
    assert bytes(answer.responses[0].partitions[0].records) == shelf.content
    assert (await slow.receive())[0] == 1
    await until(lambda: node.limits.answers.used == 0)


async def test_a_reader_that_leaves_in_the_middle_gives_everything_back(
    start: Start, world: World, tmp_path: Path
) -> None:
    node = await start(tls=world.tls())
    shelf = Shelf(tmp_path)
    node.dispatcher.register({ApiKey.FETCH: shelf.fetch})
    client = await node.connect(world.client())
    client.send(request(0, SIZE))
    await until(lambda: len(node.listener.connections) == 1)
    (link,) = node.listener.connections
    await until(lambda: link._sender.is_busy and link._sender.sent > 0)
    client.writer.transport.abort()
    await until(lambda: nobody_is_left(node))
    await until(lambda: shelf.segment._uses == 0 and node.limits.answers.used == 0)


async def test_large_requests_come_whole(start: Start, world: World) -> None:
    """S16: buffers of the node's are lent over TLS as well, and an empty one would stall uvloop."""
    node = await start(tls=world.tls())
    seen: list[bytes] = []

    def serve(call: Call) -> produce.ProduceResponse:
        seen.append(bytes(call.request.topic_data[0].partition_data[0].records))
        return produce.ProduceResponse(responses=[])

    node.dispatcher.register({ApiKey.PRODUCE: serve})
    client = await node.connect(world.client())
    sent = [os.urandom(size) for size in (900_000, 1_000_000, 10, 700_000, 3_000_000, 200_000, 1)]
    for records in sent:
        partition = produce.Partition(index=0, records=records)
        topic = produce.Topic(name="t", partition_data=[partition])
        client.send((produce.ProduceRequest(acks=1, timeout_ms=9000, topic_data=[topic]), 7), LIST)
    async with asyncio.timeout(ANSWER_S):
        for number in range(2 * len(sent)):
            assert (await client.receive())[0] == number
    assert seen == sent


@pytest.mark.parametrize(
    ("of_node", "of_listener", "is_internal", "rate"),
    [
        (UNLIMITED, UNLIMITED, False, 200),
        (50, UNLIMITED, False, 50),
        (50, 20, False, 20),
        (50, UNLIMITED, True, 200),
        (UNLIMITED, 900, False, 900),
    ],
)
def test_the_rate_of_handshakes_is_that_of_connections_where_one_is_set(
    of_node: int, of_listener: int, is_internal: bool, rate: int
) -> None:
    quotas = ConnectionQuotas(
        NetworkSettings(max_connection_creation_rate=of_node),
        {"TEST": ListenerQuota(creations_per_s=of_listener)},
    )
    assert quotas.handshakes_per_s("TEST", is_internal=is_internal, unset=200) == rate
