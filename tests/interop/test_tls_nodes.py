"""Nodes that speak TLS with each other, by a secret or by certificates alone (S9, S12, S72)."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.client.tls.contexts import client_context
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.console.development.cluster import Cluster
from barnabas.protocol.zookeeper.znodes import BrokerRegistration, broker_path
from tests.harness import znodes
from tests.harness.certificates import DAY
from tests.harness.own_client import Own
from tests.harness.steady_load import SteadyLoad
from tests.harness.steady_settings import STEADY
from tests.harness.tls_files import TlsFiles
from tests.harness.waiting import eventually

WAIT_S: Final = 240.0
RECORDS: Final = 300
REFUSED_MS: Final = 15_000


def settings_of(files: TlsFiles, protocol: str) -> dict[str, str]:
    settings = {
        **STEADY,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INTERNAL:{protocol}",
        **files.server(),
    }
    if protocol == "SSL":
        settings |= {
            "listener.name.internal.ssl.client.auth": "required",
            "cluster.node.principals": "User:CN=node,C=US",
        }
    return settings


def internal_address(cluster: Cluster, node_id: int) -> tuple[str, int]:
    with znodes.session(cluster.zookeeper) as client:
        data = client.get(broker_path(node_id))[0]
    return BrokerRegistration.from_json(data).endpoints["INTERNAL"]


def asks(address: tuple[str, int], tls: TlsSettings | None) -> None:
    """Connect as a stranger does."""

    async def open_and_close() -> None:
        context = None if tls is None else client_context(tls)
        await (await Connection.open(*address, timeout_ms=REFUSED_MS, tls=context)).close()

    asyncio.run(open_and_close())


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_replication_goes_on_over_tls_while_certificates_are_renewed_and_a_node_is_killed(
    tmp_path: Path, topic: str, protocol: str
) -> None:
    files = TlsFiles(tmp_path)
    with Cluster(3, settings=settings_of(files, protocol)) as cluster:
        Own().create_topic(cluster.bootstrap, topic, 1, 3)
        load = SteadyLoad(cluster.bootstrap, topic)
        load.start()
        load.reach(RECORDS)
        files.renew(files.node, until=9 * DAY)
        for node in cluster.nodes:
            os.kill(node.pid, signal.SIGHUP)
        for node in cluster.nodes:
            log = node.log
            eventually(
                lambda log=log: log.read_text().count("loaded certificate") >= 2,  # type: ignore[misc]
                within_s=WAIT_S,
                what=f"the new certificate of node {node.id}",
            )
        load.reach(RECORDS)
        cluster.kill(2)
        cluster.restart(2)
        load.reach(RECORDS)
        sent = load.end()
        found = Own().read(cluster.bootstrap, topic, {0: 0})
        assert [record.value for record in found] == sent
        address = internal_address(cluster, 1)
        with pytest.raises(KafkaError):
            asks(address, None)
        if protocol == "SSL":
            nameless = TlsSettings(
                ssl_truststore_type="PEM", ssl_truststore_location=str(files.trust)
            )
            with pytest.raises(KafkaError):
                asks(address, nameless)
            user = replace(
                nameless, ssl_keystore_type="PEM", ssl_keystore_location=str(files.client)
            )
            with pytest.raises(KafkaError):
                asks(address, user)
            eventually(
                lambda: "is none of cluster.node.principals" in cluster.node(1).log.read_text(),
                what="the node says why",
            )
