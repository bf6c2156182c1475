"""What tests of rotation share: a load that goes on, and how a cluster is taken through a change.

Source: docs/security.md, "Rotation".
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import ssl
from typing import Any, Final

from barnabas.client import ConsumerConfig, SyncConsumer
from barnabas.client.client_config import ClientConfig
from barnabas.client.properties_file import read_client_properties
from barnabas.console.development.ports import LOOPBACK

from .secured_cluster import START_S, USER, SecuredCluster
from .steady_load import SteadyLoad
from .traffic import PatientCommitter
from .waiting import eventually

TOPIC: Final = "kept"
GROUP: Final = "keeper"
_RECORDS: Final = 50


def prepare(cluster: SecuredCluster) -> None:
    """The topic, and the user's rights to it and to the group."""
    assert cluster.command("topics", "create", TOPIC, "--partitions", "1") == 0
    rights = ("--topic", TOPIC, "--allow-principal", f"User:{USER}")
    assert cluster.command("acls", "add", *rights, "--producer") == 0
    assert cluster.command("acls", "add", *rights, "--consumer", "--group", GROUP) == 0


class Load:
    """Records by our client, all of which must be there in the end."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._cluster = cluster
        self.sent: list[bytes] = []
        self._producer: SteadyLoad | None = None

    def client(self) -> ClientConfig:
        return read_client_properties(self._cluster.client(USER, "client.properties")).client

    def begin(self, **changes: Any) -> None:
        """From here on as that user says; the former producer ends afterwards."""
        given = dataclasses.asdict(dataclasses.replace(self.client(), **changes))
        former, self._producer = self._producer, SteadyLoad(self._cluster.bootstrap, TOPIC, **given)
        self._producer.start()
        self.go_on()
        if former is not None:
            self.sent += former.end()

    def go_on(self) -> None:
        assert self._producer is not None
        self._producer.reach(_RECORDS)

    def end(self) -> list[bytes]:
        assert self._producer is not None
        self.sent += self._producer.end()
        return self.sent


def check_nothing_is_lost(cluster: SecuredCluster, load: Load) -> None:
    """Whatever was acknowledged is there, and nothing else."""
    sent = load.end()
    config = read_client_properties(cluster.client("admin", "client.properties")).client
    assert sorted(read_all(cluster, config, len(sent))) == sorted(sent)


def read_all(cluster: SecuredCluster, config: ClientConfig, count: int) -> list[bytes]:
    """As many records as were acknowledged, from the beginning, and that there are no more."""
    found: list[bytes] = []
    earliest = ConsumerConfig(auto_offset_reset="earliest")
    with SyncConsumer(cluster.bootstrap, TOPIC, client=config, config=earliest) as consumer:
        while len(found) < count:
            batch = consumer.next_batch(500, timeout_s=START_S)
            assert batch is not None, f"{len(found)} of {count}"
            found += [record.value or b"" for record in batch]
        assert consumer.next_batch(500, timeout_s=1.0) is None
    return found


def committer(cluster: SecuredCluster) -> PatientCommitter:
    """Commits by librdkafka, as the user's file says."""
    settings = {name.replace(".", "_"): text for name, text in cluster.librdkafka().items()}
    return PatientCommitter(cluster.bootstrap, TOPIC, GROUP, **settings)


def roll(cluster: SecuredCluster, load: Load, **settings: str | None) -> None:
    """Restart node by node with other settings, while the load goes on."""
    for number in sorted(cluster.nodes):
        cluster.change(number, **settings)
        cluster.restart(number)
        load.go_on()


def read_certificates_again(cluster: SecuredCluster) -> None:
    """Else nodes look once a minute; returns when each has read its files."""
    before = {number: _loads(cluster, number) for number in cluster.nodes}
    for node in cluster.nodes.values():
        os.kill(node.pid, signal.SIGHUP)
    for number, former in before.items():
        eventually(
            lambda number=number, former=former: _loads(cluster, number) > former,  # type: ignore[misc]
            within_s=START_S,
            what=f"node {number} reads its files again",
        )


def _loads(cluster: SecuredCluster, number: int) -> int:
    log = cluster.properties(number).with_name("node.log")
    return log.read_text().count("loaded certificate listener=INTERNAL")


def shown(cluster: SecuredCluster, address: str) -> bytes:
    """The certificate that a node shows to the next client."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(cluster.client(USER, "truststore.pem")))
    with (
        socket.create_connection((host, int(port)), timeout=START_S) as link,
        context.wrap_socket(link, server_hostname=LOOPBACK) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
