"""TLS to a real ZooKeeper: who is believed, and whom ZooKeeper believes (S69)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.tls.contexts import ClientTls
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.client.zookeeper.interface import ConnectionLost
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.__main__ import main
from barnabas.console.development.java import find_java
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.apache_kafka import class_path
from benchmarks.server_process import ServerProcess
from tests.harness.certificates import Authority
from tests.harness.needs import apache_kafka_jars
from tests.harness.tls_files import TlsFiles

SESSION_MS: Final = 10_000
WAIT_MS: Final = 120_000
REFUSED_MS: Final = 6_000
HANDSHAKE_MS: Final = 20_000
"""The same where ZooKeeper has to show its certificate first: Java may be slow to do so."""
FLAGS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Secured:
    """ZooKeeper that asks for certificates, on a port that speaks nothing but TLS."""

    files: TlsFiles
    hosts: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    jars = apache_kafka_jars()
    directory = tmp_path_factory.mktemp("zookeeper")
    files = TlsFiles(directory)
    port = free_ports(1)[0]
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime=500\ndataDir={directory / 'data'}\nsecureClientPort={port}\n"
        "secureClientPortAddress=0.0.0.0\nadmin.enableServer=false\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={files.node}\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={files.trust}\nssl.trustStore.type=PEM\n"
        "ssl.clientAuth=need\nssl.clientHostnameVerification=false\n"
    )
    command = [str(find_java()), *FLAGS, "-Dzookeeper.jmx.log4j.disable=true", "-cp"]
    command += [class_path(jars), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    server = ServerProcess("zookeeper", command, port, directory / "zookeeper.log")
    server.launch()
    try:
        server.wait_until_listening(WAIT_MS / 1000)
        yield Secured(files, f"{LOOPBACK}:{port}")
    finally:
        server.stop()


def client(secured: Secured, **others: Any) -> ClientTls:
    settings = {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(secured.files.trust),
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(secured.files.client),
        "ssl_protocol": "TLSv1.2",
        "ssl_enabled_protocols": ("TLSv1.2",),
        **others,
    }
    return ClientTls(TlsSettings(**settings))


async def test_znodes_are_written_and_read_over_tls(secured: Secured) -> None:
    session = await connect(
        f"{secured.hosts}/chroot",
        session_timeout_ms=SESSION_MS,
        connection_timeout_ms=WAIT_MS,
        tls=client(secured),
    )
    try:
        await asyncio.gather(*(session.create(f"/n{n}", b"x" * 50_000) for n in range(40)))
        found = await asyncio.gather(*(session.get(f"/n{n}") for n in range(40)))
        assert all(data == b"x" * 50_000 for data, _ in found)
        assert await session.peek("/n1") == b"x" * 50_000
    finally:
        await session.close()


@pytest.mark.parametrize(
    ("mistake", "reason", "within_ms"),
    [
        ("another authority", "certificate refused", HANDSHAKE_MS),
        ("another host", "certificate refused", HANDSHAKE_MS),
        ("no certificate", "no session", REFUSED_MS),
        ("a stranger's certificate", "no session", REFUSED_MS),
        ("no TLS", "no session", REFUSED_MS),
        ("a truststore that is missing", "No such file", REFUSED_MS),
    ],
)
async def test_nobody_is_believed_without_a_proper_certificate(
    secured: Secured, tmp_path: Path, mistake: str, reason: str, within_ms: int
) -> None:
    """Neither ZooKeeper nor its client, and neither hangs."""
    files, hosts = secured.files, secured.hosts
    other = Authority("other").trust_store(tmp_path / "other.pem")
    tls: ClientTls | None = client(secured)
    if mistake == "another authority":
        tls = client(secured, ssl_truststore_location=str(other))
    elif mistake == "another host":
        hosts = hosts.replace(LOOPBACK, "127.0.0.2")
    elif mistake == "no certificate":
        tls = client(secured, ssl_keystore_location=None)
    elif mistake == "a stranger's certificate":
        tls = client(secured, ssl_keystore_location=str(files.strange))
    elif mistake == "no TLS":
        tls = None
    else:
        tls = client(secured, ssl_truststore_location=str(tmp_path / "missing"))
    with pytest.raises(ConnectionLost, match=reason):
        await connect(
            hosts, session_timeout_ms=SESSION_MS, connection_timeout_ms=within_ms, tls=tls
        )


def test_a_command_reaches_zookeeper_over_tls(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``zookeeper.ssl.*`` stand in the file of ``--command-config``, as nodes have them."""
    settings = {
        "zookeeper.connect": f"{secured.hosts}/users",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": secured.files.trust,
        "zookeeper.ssl.keystore.location": secured.files.client,
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ["users", "list", "--timeout-ms", str(WAIT_MS), "--command-config", str(file)]
    assert main(words) == 0
    settings["zookeeper.ssl.truststore.location"] = Authority("other").trust_store(
        tmp_path / "other.pem"
    )
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words[3] = str(HANDSHAKE_MS)
    assert main(words) == 1
    assert "certificate refused" in capsys.readouterr().err
