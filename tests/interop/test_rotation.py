"""Every secret of a cluster is replaced under load, and nothing acknowledged is lost.

Source: docs/security.md, "Rotation"; docs/spec/security.md §1 (S12), §2 (S32), §5 (S68), §6 (S73).
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client import ConsumerConfig, SyncConsumer
from barnabas.client.client_config import ClientConfig
from barnabas.client.properties_file import read_client_properties
from barnabas.client.zookeeper.identity import ZooKeeperLogin
from barnabas.console.__main__ import main
from barnabas.console.development.ports import LOOPBACK
from barnabas.console.development.zookeeper_security import client_jaas, server_jaas
from tests.harness.secured_cluster import START_S, USER, SecuredCluster
from tests.harness.steady_load import SteadyLoad
from tests.harness.traffic import PatientCommitter
from tests.harness.waiting import eventually

NODES: Final = 3
RECORDS: Final = 50
TOPIC: Final = "kept"
GROUP: Final = "keeper"
NEW_SECRET: Final = secrets.token_hex(32)
NEW_PASSWORD: Final = secrets.token_hex(32)

pytestmark = pytest.mark.nightly


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path / "secured", NODES) as running:
        assert running.command("topics", "create", TOPIC, "--partitions", "1") == 0
        rights = ("--topic", TOPIC, "--allow-principal", f"User:{USER}")
        assert running.command("acls", "add", *rights, "--producer") == 0
        assert running.command("acls", "add", *rights, "--consumer", "--group", GROUP) == 0
        yield running


class Load:
    """Records by our client and commits by librdkafka, all of which must be there in the end."""

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
        self._producer.reach(RECORDS)

    def end(self) -> list[bytes]:
        assert self._producer is not None
        self.sent += self._producer.end()
        return self.sent


def roll(cluster: SecuredCluster, load: Load, **settings: str | None) -> None:
    """Restart node by node with other settings, while the load goes on."""
    for number in range(1, NODES + 1):
        cluster.change(number, **settings)
        cluster.restart(number)
        load.go_on()


def test_every_secret_is_replaced_while_records_and_offsets_are_written(
    cluster: SecuredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(cluster)
    load.begin()
    dotted = cluster.librdkafka()
    settings = {name.replace(".", "_"): text for name, text in dotted.items()}
    with PatientCommitter(cluster.bootstrap, TOPIC, GROUP, **settings) as committer:
        replace_certificates(cluster, load)
        replace_cluster_secret(cluster, load)
        replace_zookeeper_password(cluster, load)
        before = committer.acknowledged
        eventually(lambda: committer.acknowledged > before, within_s=START_S, what="commits")
    replace_users_password(cluster, load, monkeypatch)
    sent = load.end()
    config = read_client_properties(cluster.client("admin", "client.properties")).client
    assert sorted(read_all(cluster, config, len(sent))) == sorted(sent)
    assert cluster.command("groups", "list") == 0
    assert committer.acknowledged > 0


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


def replace_certificates(cluster: SecuredCluster, load: Load) -> None:
    before = [shown(cluster, address) for address in cluster.bootstrap.split(",")]
    assert main(["security", "renew", str(cluster.directory)]) == 0
    for node in cluster.nodes.values():
        os.kill(node.pid, signal.SIGHUP)  # else they look by themselves, once a minute
    for address, former in zip(cluster.bootstrap.split(","), before, strict=True):
        eventually(
            lambda address=address, former=former: shown(cluster, address) != former,  # type: ignore[misc]
            within_s=START_S,
            what="another certificate",
        )
        load.go_on()
    cluster.restart_zookeeper()
    load.go_on()


def shown(cluster: SecuredCluster, address: str) -> bytes:
    """The certificate that a node shows to the next client."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(cluster.client(USER, "truststore.pem")))
    with (
        socket.create_connection((host, int(port)), timeout=START_S) as link,
        context.wrap_socket(link, server_hostname=LOOPBACK) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def replace_cluster_secret(cluster: SecuredCluster, load: Load) -> None:
    old = cluster.value(1, "cluster.secret")
    roll(cluster, load, cluster__secret__previous=NEW_SECRET)
    roll(cluster, load, cluster__secret=NEW_SECRET, cluster__secret__previous=old)
    # The third round, NEW alone, is made together with the first of the next secret.


def replace_zookeeper_password(cluster: SecuredCluster, load: Load) -> None:
    new = ZooKeeperLogin("sasl", "kafka", NEW_PASSWORD)
    roll(
        cluster,
        load,
        cluster__secret__previous=None,
        zookeeper__jaas__config__previous=client_jaas(new),
    )
    (cluster.directory / "zookeeper" / "jaas.conf").write_text(server_jaas(new))
    cluster.restart_zookeeper()
    load.go_on()
    roll(
        cluster,
        load,
        zookeeper__jaas__config=client_jaas(new),
        zookeeper__jaas__config__previous=None,
    )


def replace_users_password(
    cluster: SecuredCluster, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mechanism has a password of its own: clients go over by the other one."""
    tools = cluster.directory / "tools" / "zookeeper.properties"
    tools.write_text(
        tools.read_text().replace(
            (cluster.directory / "secrets" / "zookeeper.password").read_text().strip(), NEW_PASSWORD
        )
    )
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        monkeypatch.setattr(sys, "stdin", StringIO(NEW_PASSWORD + "\n"))
        words = ["users", "set", USER, "--mechanism", mechanism, "--command-config", str(tools)]
        assert main(words) == 0
        load.begin(
            sasl_jaas_config=None,
            sasl_mechanism=mechanism,
            sasl_username=USER,
            sasl_password=NEW_PASSWORD,
        )
