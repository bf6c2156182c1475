"""Three servers as ``barnabas zookeeper`` runs them: TLS among them, logins of clients."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.tls.contexts import ClientTls
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.client.zookeeper.interface import ConnectionLost
from barnabas.client.zookeeper.kazoo_session import KazooSession, connect
from barnabas.client.zookeeper.znode_acl import ALL, ZnodeAcl
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import ROOT
from benchmarks.server_process import ServerProcess
from tests.harness.secured_zookeeper import NODES, jaas_file
from tests.harness.tls_files import TlsFiles

SESSION_MS: Final = 10_000
START_S: Final = 120
SERVERS: Final = 3

pytestmark = pytest.mark.nightly


class Ensemble:
    """Servers of one authority, each on a port that speaks nothing but TLS."""

    def __init__(self, directory: Path) -> None:
        self.files = TlsFiles(directory)
        self._jaas = jaas_file(directory)
        self._directory = directory
        ports = iter(free_ports(3 * SERVERS))
        self.ports = [next(ports) for _ in range(SERVERS)]
        self._list = ";".join(f"{LOOPBACK}:{next(ports)}:{next(ports)}" for _ in range(SERVERS))
        self.servers: list[ServerProcess] = []

    @property
    def hosts(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)

    def start(self) -> None:
        for number, port in enumerate(self.ports, start=1):
            words = ["zookeeper", "--id", str(number), "--servers", self._list, "--tick", "500"]
            words += ["--data", str(self._directory / str(number)), "--port", str(port)]
            words += ["--jaas", str(self._jaas), "--require-login"]
            words += ["--tls-keystore", str(self.files.node)]
            words += ["--tls-truststore", str(self.files.trust)]
            path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
            command = ["/usr/bin/env", f"PYTHONPATH={path}", sys.executable]
            command += ["-m", "barnabas.console", *words]
            log = self._directory / f"{number}.log"
            self.servers.append(ServerProcess(f"zookeeper-{number}", command, port, log))
            self.servers[-1].launch()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    async def seen(self) -> bytes:
        """What a fresh session reads."""
        session = await self.session()
        try:
            return (await session.get("/brokers"))[0]
        finally:
            await session.close()

    async def session(self) -> KazooSession:
        settings = TlsSettings(
            ssl_truststore_type="PEM", ssl_truststore_location=str(self.files.trust)
        )
        return await connect(
            self.hosts,
            session_timeout_ms=SESSION_MS,
            connection_timeout_ms=START_S * 1000,
            tls=ClientTls(settings),
            identity=NODES,
        )


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    made = Ensemble(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.stop()


async def test_a_session_moves_between_servers_that_speak_tls_to_each_other(
    ensemble: Ensemble,
) -> None:
    """A server that ends takes no session with it; what was written is there on the others."""
    session = await ensemble.session()
    try:
        await session.create("/brokers", b"0")
        before = session.session_id
        for number, server in enumerate(ensemble.servers, start=1):
            server.stop()
            await _write(session, b"%d" % number)
            server.launch()
            server.wait_until_listening(START_S)
            assert await ensemble.seen() == b"%d" % number
        assert session.session_id == before
        assert ZnodeAcl("sasl:kafka", ALL) in await session.acl("/brokers")
    finally:
        await session.close()


async def _write(session: KazooSession, data: bytes) -> None:
    """Again and again: when the leader ends, its followers drop their connections, too."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                await session.exists("/brokers")  # waits for a connection
                await session.set("/brokers", data)
            except ConnectionLost:
                continue
            return
