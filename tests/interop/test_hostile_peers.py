"""The hostile corpus: whatever strangers do, others are served, memory is flat, and they are gone.

Meanwhile a member of a group (librdkafka, SASL_SSL, SCRAM) commits and beats: it must notice
nothing. The full sizes are for the night. Source: docs/spec/security.md §1, §2 and §7 (S75).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from benchmarks.server_process import resident_bytes
from tests.harness import hostile_logins, hostile_peers
from tests.harness.certificates import Authority, Issued
from tests.harness.client_hellos import ALERT, REFUSED_HELLOS
from tests.harness.hostile_peers import Handshakes, Idler, descriptors
from tests.harness.hostile_requests import ATTACKS
from tests.harness.raw_connection import Address, Closed, RawConnection, text
from tests.harness.renegotiation import Renegotiator
from tests.harness.running_nodes import running
from tests.harness.tls_files import PASSWORD, USER, TlsFiles
from tests.harness.waiting import eventually
from tests.harness.witness import Witness

log = logging.getLogger(__name__)

MIB: Final = 1 << 20
TOPIC: Final = "watched"
MECHANISM: Final = "SCRAM-SHA-512"
LIMIT_S: Final = 60.0
"""From the last accept to the end of the last of them: ten seconds, S75, and as long as a busy
machine needs to accept them all. tests/net/test_authentication.py and
tests/net/test_tls_listener.py show the limit itself; without it they would stay for minutes."""
WAIT_S: Final = 120.0
GROWTH_BYTES_MAX: Final = 48 * MIB
"""Of small sizes; with the full ones pages of the allocator stay in use, which are bounded too."""
FULL_GROWTH_BYTES_MAX: Final = 256 * MIB
API_VERSIONS_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 1, 0)


@dataclass
class Target:
    """One node with a listener of each kind, and the member that watches it."""

    files: TlsFiles
    pid: int
    addresses: dict[str, Address]
    log: Path
    witness: Witness

    def is_clear(self, before: int) -> bool:
        """As many descriptors as before, but for a few of the log."""
        return descriptors(self.pid) <= before + 8

    @contextlib.contextmanager
    def attacked(self, name: str, growth_max: int = GROWTH_BYTES_MAX) -> Iterator[Memory]:
        """What happens inside leaves nothing behind, and the member alone."""
        before = descriptors(self.pid)
        self.witness.longest_s = 0.0
        with Memory(self.pid) as memory:
            yield memory
        eventually(lambda: self.is_clear(before), within_s=LIMIT_S, what="all connections gone")
        self.witness.check()
        memory.grown_after = resident_bytes(self.pid) - memory.before
        log.info("%s: %s; commits took %.0f ms at most", name, memory, self.witness.longest_s * 1e3)
        assert memory.peak - memory.before < growth_max


class Memory(threading.Thread):
    """Watches the resident memory of a process."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._is_over = threading.Event()
        self.before = self.peak = resident_bytes(pid)
        self.grown_after = 0

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        while not self._is_over.wait(0.05):
            self.peak = max(self.peak, resident_bytes(self._pid))

    def __str__(self) -> str:
        grown, kept = self.peak - self.before, self.grown_after
        return f"memory {self.before >> 20} MiB, +{grown >> 20} at most, +{kept >> 20} afterwards"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("hostile")
    files = TlsFiles(directory)
    names = ("PLAINTEXT", "SSL", "MUTUAL", "LOGIN", "USERS")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    settings = {
        "port": str(ports["PLAINTEXT"]),
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,"
        "LOGIN:SASL_SSL,USERS:SASL_PLAINTEXT",
        **files.server(),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.login.sasl.enabled.mechanisms": MECHANISM,
        "listener.name.users.sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";'
        ),
    }
    with EmbeddedZooKeeper() as zookeeper:
        command = [sys.executable, "-m", "barnabas.console", "users", "set", USER]
        command += ["--zookeeper", zookeeper.hosts]
        subprocess.run(command, input=f"{PASSWORD}\n", text=True, check=True)
        node = barnabas_node(directory / "node", zookeeper.hosts, settings=settings)
        with running(node):
            addresses = {name: (LOOPBACK, port) for name, port in ports.items()}
            with RawConnection(addresses["PLAINTEXT"]) as link:
                _make_topic(link)
            with Witness(_settings(files, ports["LOGIN"]), TOPIC, "watching") as witness:
                log = directory / "node" / "node.log"
                yield Target(files, node.pid, addresses, log, witness)
    assert "Traceback" not in (directory / "node" / "node.log").read_text()


def _settings(files: TlsFiles, port: int) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"{LOOPBACK}:{port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.trust),
        "sasl.mechanisms": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def _make_topic(link: RawConnection) -> None:
    """CreateTopics v0, again until it is there."""
    body = struct.pack(">i", 1) + text(TOPIC) + struct.pack(">ihiii", 1, 1, 0, 0, 10_000)

    def is_made() -> bool:
        answer = link.call(19, 0, body)
        answer.number("i")
        answer.text()
        return answer.number("h") in (0, 36)

    eventually(is_made, what="the topic is made")


# --- handshakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.nightly), pytest.param(89, id="few")]
)
def test_handshakes_that_are_cut_at_every_byte_disturb_nobody(target: Target, step: int) -> None:
    """Both versions, with a certificate and without; behind the cut an end, a reset, noise."""
    files = target.files
    peers = Handshakes(
        target.addresses["MUTUAL"], files.trust, files.client_key, files.client_chain
    )

    async def suffered() -> hostile_peers.Found:
        return await peers.suffer(await peers.cuts(step))

    with target.attacked("cut handshakes", FULL_GROWTH_BYTES_MAX if step == 1 else 32 * MIB):
        found = asyncio.run(suffered())
    log.info("%s, the slowest was gone after %.1f s", found.outcomes, found.slowest_s)
    assert set(found.outcomes) == {"closed", "reset by us"}
    if step == 1:
        assert found.outcomes.total() >= 10_000


def test_handshakes_that_must_not_be_get_an_alert_and_disturb_nobody(target: Target) -> None:
    """Old versions, no cipher, lengths that lie."""
    with target.attacked("forbidden handshakes"):
        for hello in REFUSED_HELLOS.values():
            answer = _all_of(target.addresses["SSL"], hello)
            assert answer == b"" or answer[0] == ALERT


def _all_of(address: Address, data: bytes) -> bytes:
    """What is answered until the connection ends."""
    found = b""
    with (
        socket.create_connection(address, timeout=WAIT_S) as link,
        contextlib.suppress(OSError),  # a reset: there is nothing more to read, either
    ):
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        while more := link.recv(1 << 16):
            found += more
    return found


def _strange_certificates(files: TlsFiles, directory: Path) -> dict[str, tuple[Path, Path]]:
    """Key and chain of whoever should not be let in."""
    authority, other = files.authority, Authority("another")
    day = timedelta(days=1)
    issued: dict[str, Issued] = {
        "another authority": other.issue(USER, hosts=()),
        "expired": authority.issue(USER, hosts=(), since=9 * day, until=-day),
        "not yet valid": authority.issue(USER, hosts=(), since=-day, until=9 * day),
        "of a server alone": authority.issue(USER, hosts=(), is_client=False),
        "below a client's": Authority("deeper", above=other).issue(USER, hosts=()),
    }
    found = {}
    for number, (name, one) in enumerate(issued.items()):
        key, chain = directory / f"{number}.key", directory / f"{number}.crt"
        key.write_text(one.key_pem())
        chain.write_text(one.certificates_pem)
        found[name] = key, chain
    return found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificates_that_prove_nothing_let_nobody_in(
    target: Target, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """And none at all; TLS 1.3 tells its client at the first read."""
    with target.attacked(f"strange certificates, {version.name}"):
        for name, (key, chain) in _strange_certificates(target.files, tmp_path).items():
            assert not _is_let_in(target, version, key, chain), name
        assert not _is_let_in(target, version)
    assert _is_let_in(target, version, target.files.client_key, target.files.client_chain)


def _is_let_in(
    target: Target,
    version: ssl.TLSVersion,
    key: Path | None = None,
    chain: Path | None = None,
    source: str = LOOPBACK,
) -> bool:
    context = ssl.create_default_context(cafile=str(target.files.trust))
    context.minimum_version = context.maximum_version = version
    if chain is not None:
        context.load_cert_chain(chain, key)
    try:
        with (
            socket.create_connection(
                target.addresses["MUTUAL"], timeout=WAIT_S, source_address=(source, 0)
            ) as link,
            context.wrap_socket(link, server_hostname=LOOPBACK) as session,
        ):
            session.sendall(API_VERSIONS_REQUEST)
            return session.recv(4) != b""
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("trust", ["strange_trust", "trust"])
def test_clients_that_refuse_the_node_disturb_nobody(target: Target, trust: str) -> None:
    """They end the handshake with an alert: another authority, another host than they dialled."""
    context = ssl.create_default_context(cafile=str(getattr(target.files, trust)))
    with target.attacked(f"clients that refuse, {trust}"):
        for _ in range(20):
            with (
                socket.create_connection(target.addresses["SSL"], timeout=WAIT_S) as link,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                context.wrap_socket(link, server_hostname="elsewhere.example.org")


def test_second_handshakes_inside_of_sessions_are_not_made(target: Target, tmp_path: Path) -> None:
    with target.attacked("renegotiation"):
        for number in range(20):
            directory = tmp_path / str(number)
            directory.mkdir()
            client = Renegotiator(
                target.addresses["SSL"], target.files.trust, directory, timeout_s=WAIT_S
            )
            client.begin_again()
            assert client.after_beginning_again() in ("warning", "NO_RENEGOTIATION", "closed")
            client.close()


def test_clear_text_on_a_port_of_tls_is_closed_without_a_word(target: Target) -> None:
    with target.attacked("clear text to TLS"):
        for data in (
            *ATTACKS.values(),
            API_VERSIONS_REQUEST,
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
        ):
            assert _all_of(target.addresses["SSL"], data) == b""


def test_tls_on_a_port_in_clear_is_closed_and_named_in_the_log(target: Target) -> None:
    with target.attacked("TLS to clear text"):
        for name in ("PLAINTEXT", "USERS"):
            for hello in REFUSED_HELLOS.values():
                assert _all_of(target.addresses[name], hello) == b""
    eventually(lambda: "TLS" in target.log.read_text(), what="a line in the log")


# --- logins -------------------------------------------------------------------------------------


def test_nothing_is_served_before_a_login_whatever_is_asked(target: Target) -> None:
    """S20: every API, with bytes that no decoder would understand; only 17 and 18 are looked at."""
    address = target.addresses["USERS"]
    with target.attacked("every API before the handshake"):
        for key in hostile_logins.KEYS:
            if key in (hostile_logins.API_VERSIONS, hostile_logins.SASL_HANDSHAKE):
                continue
            for frame in hostile_logins.garbage_of(key, 0):
                assert hostile_logins.is_closed_after(address, frame), key


def test_where_a_token_is_due_nothing_else_is_served(target: Target) -> None:
    """S20: answered 34 in its own shape, unread, or not at all; then the connection ends."""
    with target.attacked("every API instead of a token"):
        for key in hostile_logins.KEYS:
            if key == hostile_logins.SASL_AUTHENTICATE:
                continue
            for frame in hostile_logins.garbage_of(key, 0):
                with RawConnection(target.addresses["USERS"]) as link:
                    assert hostile_logins.handshake(link) == 0
                    with contextlib.suppress(Closed):
                        link.send(frame)
                        link.receive()
                    assert link.is_closed_by_server(), key


def test_what_others_said_in_their_logins_proves_nothing(target: Target) -> None:
    """S30: replayed as it was, with the old nonce behind the new one, twice, or out of order."""
    address = target.addresses["USERS"]
    with RawConnection(address) as link:
        said = hostile_logins.logged_in(link, USER, PASSWORD)
        assert hostile_logins.is_served(link)
    with target.attacked("replayed logins"):
        for tokens in _replays(said):
            with RawConnection(address) as link:
                assert hostile_logins.handshake(link) == 0
                codes = []
                with contextlib.suppress(Closed):
                    codes += [hostile_logins.token(link, one)[0] for one in tokens]
                assert codes[-1] == hostile_logins.SASL_AUTHENTICATION_FAILED
                assert not hostile_logins.is_served(link)


def _replays(said: hostile_logins.Login) -> list[list[bytes]]:
    return [
        [said.first, said.final],
        [said.first, said.first],
        [said.first, said.challenge],
        [said.first, said.proof],
        [said.final],
        [said.challenge],
        [said.proof],
        [said.first, said.final.replace(b"biws", b"eSws")],
        [said.first, said.final[:-8]],
        [said.first, said.final + b",m=x"],
    ]


def test_a_nonce_that_only_ends_as_the_nodes_does_proves_nothing(target: Target) -> None:
    """CVE-2024-56128: the proof itself is right."""
    with target.attacked("longer nonces"), RawConnection(target.addresses["USERS"]) as link:
        assert hostile_logins.handshake(link) == 0
        first = f"n,,n={USER},r=mine".encode()
        code, challenge = hostile_logins.token(link, first)
        assert code == 0
        nonce = challenge.decode().split(",")[0][2:]
        final = hostile_logins.final_of(first, challenge, PASSWORD, nonce=f"more{nonce}")
        assert hostile_logins.token(link, final)[0] == hostile_logins.SASL_AUTHENTICATION_FAILED


def test_a_login_is_over_once_and_its_messages_open_nothing_again(target: Target) -> None:
    """S22: behind it they are answered 34, and the connection stays who it was."""
    with target.attacked("logins after a login"), RawConnection(target.addresses["USERS"]) as link:
        said = hostile_logins.logged_in(link, USER, PASSWORD)
        for one in (said.first, said.final, b"\0bob\0secret"):
            assert hostile_logins.token(link, one)[0] == hostile_logins.ILLEGAL_SASL_STATE
            assert hostile_logins.handshake(link) == hostile_logins.ILLEGAL_SASL_STATE
        assert hostile_logins.is_served(link)


# --- crowds -------------------------------------------------------------------------------------

CROWD, FEW = 5_000, 40
ELSEWHERE: Final = "127.0.0.2"
CROWDS: Final[dict[str, tuple[str, Idler]]] = {
    "silent, TLS": ("SSL", hostile_peers.SILENT),
    "silent, login": ("USERS", hostile_peers.SILENT),
    "a byte a second, TLS": ("SSL", hostile_peers.SLOW_TLS),
    "a byte a second, login": ("USERS", hostile_peers.SLOW_LOGIN),
    "half a handshake": ("MUTUAL", hostile_peers.HALF_HANDSHAKE),
    "half a handshake of 64 KB": ("SSL", hostile_peers.HALF_LONG_HANDSHAKE),
    "half a token": ("USERS", hostile_peers.HALF_TOKEN),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CROWDS)
def test_five_thousand_that_never_come_to_the_point_are_gone_in_time(
    target: Target, name: str
) -> None:
    listener, idler = CROWDS[name]
    hostile_peers.raise_limit()
    with target.attacked(f"{CROWD} peers, {name}", FULL_GROWTH_BYTES_MAX):
        found = asyncio.run(hostile_peers.idle(target.addresses[listener], idler, CROWD, LIMIT_S))
    log.info("%s", found)
    assert (found.closed, found.refused, found.open_at_the_end) == (CROWD, 0, 0)


def test_peers_that_never_come_to_the_point_are_gone_in_time(target: Target) -> None:
    """Some of each kind, at once."""

    async def all_kinds() -> list[hostile_peers.IdlersFound]:
        return await asyncio.gather(
            *(
                hostile_peers.idle(target.addresses[listener], idler, FEW, LIMIT_S)
                for listener, idler in CROWDS.values()
            )
        )

    with target.attacked(f"{FEW} peers of each kind"):
        for found in asyncio.run(all_kinds()):
            assert (found.closed, found.refused, found.open_at_the_end) == (FEW, 0, 0)


@pytest.mark.nightly
def test_five_thousand_idle_sessions_take_less_than_200_mib(target: Target) -> None:
    """S17, on uvloop."""
    hostile_peers.raise_limit()
    context = ssl.create_default_context(cafile=str(target.files.trust))
    with target.attacked(f"{CROWD} idle sessions of TLS", 200 * MIB) as memory:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            opened = runner.run(hostile_peers.sessions(target.addresses["SSL"], context, CROWD))
        grown = memory.peak - memory.before
    log.info("%d sessions, %.1f KiB each", opened, grown / opened / 1024)
    assert opened == CROWD


def test_a_thousand_half_open_handshakes_keep_no_client_out(target: Target) -> None:
    """Others shake hands meanwhile, and do not wait for the address that floods."""
    hostile_peers.raise_limit()
    let_in: list[float] = []

    def come_in() -> None:
        began = time.monotonic()
        assert _is_let_in(
            target,
            ssl.TLSVersion.TLSv1_3,
            target.files.client_key,
            target.files.client_chain,
            source=ELSEWHERE,
        )
        let_in.append(time.monotonic() - began)

    with target.attacked("1,000 half-open handshakes", FULL_GROWTH_BYTES_MAX):
        found = asyncio.run(
            hostile_peers.idle(
                target.addresses["MUTUAL"], hostile_peers.HALF_HANDSHAKE, 1_000, LIMIT_S, come_in
            )
        )
    log.info("%s; %d others came in, within %.2f s", found, len(let_in), max(let_in))
    assert (found.closed, found.open_at_the_end) == (1_000, 0)
