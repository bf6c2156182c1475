"""What a stranger gets of a node's own surfaces: metrics and beacons (docs/spec/security.md §8).

And each family of metrics is in the table of docs/operations.md.
"""

from __future__ import annotations

import http.client
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from tests.harness.certificates import Authority
from tests.harness.running_nodes import running
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
SILENCE_S: Final = 0.3
"""How long a stranger waits for an answer that does not come."""


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Of a node that has everything that tells metrics of security."""
    directory = tmp_path_factory.mktemp("surfaces")
    names = ("PLAINTEXT", "INTERNAL", "SECURE", "metrics")
    found = dict(zip(names, free_ports(4), strict=True))
    store = Authority().issue("node").pem_store(directory / "key.pem")
    settings = {
        **STEADY,
        "port": str(found["PLAINTEXT"]),
        "listeners": ",".join(f"{name}://{LOOPBACK}:{found[name]}" for name in names[:3]),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,SECURE:SSL"
        ),
        "inter.broker.listener.name": "INTERNAL",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(store),
        "cluster.secret": "surfaces",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "metrics.listener": f"{LOOPBACK}:{found['metrics']}",
        "metrics.compat": "kafka_exporter,lag_exporter",
        "audit.log.path": str(directory / "audit.log"),
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(directory, zookeeper.hosts, settings=settings)
        with running(node):
            eventually(lambda: "barnabas_lease_held" in scrape(found), what="metrics are told")
            yield found


def scrape(ports: dict[str, int]) -> str:
    try:
        with urllib.request.urlopen(
            f"http://{LOOPBACK}:{ports['metrics']}/metrics", timeout=120
        ) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/", 404),
        ("GET", "/metrics/../../etc/passwd", 404),
        ("GET", "/metrics/x", 404),
        ("POST", "/metrics", 405),
        ("PUT", "/metrics", 405),
        ("DELETE", "/metrics", 405),
        ("OPTIONS", "*", 405),
        ("CONNECT", "z:1", 405),
        ("TRACE", "/metrics", 405),
    ],
)
def test_the_port_of_metrics_answers_one_question(
    ports: dict[str, int], method: str, path: str, status: int
) -> None:
    link = http.client.HTTPConnection(LOOPBACK, ports["metrics"], timeout=120)
    link.putrequest(method, path, skip_host=True)
    link.endheaders()
    answer = link.getresponse()
    body = answer.read()
    link.close()
    assert answer.status == status
    assert bool(body) == (method != "HEAD")
    if status != 200:
        assert len(body) < 100


def test_every_family_that_a_node_tells_is_in_the_manual(ports: dict[str, int]) -> None:
    families = set(re.findall(r"^# TYPE barnabas_(\S+) ", scrape(ports), re.MULTILINE))
    assert {"tls_handshake_seconds", "acls", "audit_lines_lost_total"} <= families
    assert sorted(families - told_in_the_manual()) == []


def told_in_the_manual() -> set[str]:
    """Names in the table; alternatives in braces are taken apart, labels left out."""
    found = set()
    for cell in re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(), re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", cell):
            found |= set(spelled_out(name))
    # Of this the text below the table tells.
    return found | {"offsets_without_lag"}


def spelled_out(name: str) -> Iterator[str]:
    several = re.fullmatch(r"(\w+_)\{([\w,]+)\}(\{.*)?", name)
    if several is None:
        yield name.partition("{")[0]
        return
    yield from (several[1] + word for word in several[2].split(","))


DATAGRAMS: Final = (
    b"",
    b"\0",
    b"x" * 1400,
    b"x" * 60_000,
    bytes(range(256)),
    b"\x00\x00\x00\x1d\x00\x12\x00\x03\x00\x00\x00\x01",
    b"\x93\x01\x02\x03",
)


def test_beacons_answer_nothing_to_who_has_proved_nothing(ports: dict[str, int]) -> None:
    """S74; where nodes meet by TCP their datagrams come, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.settimeout(SILENCE_S)
        for _ in range(20):
            for datagram in DATAGRAMS:
                stranger.sendto(datagram, (LOOPBACK, ports["INTERNAL"]))
        with pytest.raises(TimeoutError):
            stranger.recvfrom(65_536)
    assert "barnabas_lease_held" in scrape(ports), "and the node lives"


@pytest.mark.parametrize("name", ["PLAINTEXT", "SECURE"])
def test_other_ports_take_no_datagrams(ports: dict[str, int], name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.connect((LOOPBACK, ports[name]))
        stranger.settimeout(SILENCE_S)
        stranger.send(b"anybody?")
        with pytest.raises((ConnectionRefusedError, TimeoutError)):
            stranger.recv(65_536)
