"""Certificates that clients see are replaced under load, and nothing is lost (S12, S13)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from tests.harness.certificates import DAY, PASSWORD, der
from tests.harness.own_client import Own
from tests.harness.running_nodes import running
from tests.harness.steady_load import SteadyLoad
from tests.harness.steady_settings import STEADY
from tests.harness.tls_files import TlsFiles
from tests.harness.waiting import eventually

START_S: Final = 240.0
WAIT_S: Final = 60.0
RECORDS: Final = 100
LOCATION: Final = "listener.name.ssl.ssl.keystore.location"


@dataclass(frozen=True)
class Served:
    files: TlsFiles
    plain: str
    encrypted: tuple[str, int]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("renewal")
    files = TlsFiles(directory)
    plain, encrypted = free_ports(2)
    settings = {
        **STEADY,
        "port": str(plain),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{plain},SSL://{LOOPBACK}:{encrypted}",
        **files.server(),
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(directory / "node", zookeeper.hosts, settings=settings)
        with running(node):
            yield Served(files, f"{LOOPBACK}:{plain}", (LOOPBACK, encrypted))


def alter(served: Served, name: str, value: str) -> None:
    """As kafka-configs does for one broker; raises KafkaException."""
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])
    client = AdminClient({"bootstrap.servers": served.plain})
    for future in client.incremental_alter_configs([broker]).values():
        future.result(WAIT_S)


def shown(served: Served) -> bytes:
    """The certificate that the node shows to the next client."""
    context = ssl.create_default_context(cafile=str(served.files.trust))
    with (
        socket.create_connection(served.encrypted, timeout=WAIT_S) as link,
        context.wrap_socket(link, server_hostname=LOOPBACK) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def test_a_certificate_is_replaced_by_request_while_clients_write_and_nothing_is_lost(
    served: Served, topic: str
) -> None:
    """The same location, given once more, has the file read again; so has another one."""
    settings: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(served.files.trust),
    }
    address = f"{LOOPBACK}:{served.encrypted[1]}"
    Own().create_topic(served.plain, topic, 1)
    load = SteadyLoad(address, topic, **settings)
    load.start()
    load.reach(RECORDS)
    first = shown(served)
    for path in (served.files.node, served.files.node, served.files.directory / "third.pem"):
        issued = served.files.renew(path, until=9 * DAY)
        alter(served, LOCATION, str(path))
        wanted = der(issued.certificate)
        eventually(
            lambda wanted=wanted: shown(served) == wanted,  # type: ignore[misc]
            within_s=START_S,
            what="the new certificate",
        )
        load.reach(RECORDS)
    assert shown(served) != first
    sent = load.end()
    found = Own().read(served.plain, topic, {0: 0})
    assert [record.value for record in found] == sent


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (LOCATION, "/no/such/file", "No such file"),
        (LOCATION, "{other name}", "say ssl.allow.dn.changes=true"),
        (LOCATION, "{no key}", "holds 0 private keys"),
        ("ssl.keystore.location", "{same}", "behind listener.name.NAME. only"),
        ("listener.name.ssl.ssl.key.password", PASSWORD, "no password is kept in ZooKeeper"),
        ("listener.name.ssl.ssl.enabled.protocols", "TLSv1.1", "not secure"),
        ("listener.name.sll.ssl.keystore.location", "{same}", "there is no listener sll"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_former_certificate_stays(
    served: Served, name: str, value: str, reason: str
) -> None:
    files = served.files
    other = files.authority.issue("other").pem_store(files.directory / "other.pem")
    given = {"{other name}": other, "{no key}": files.trust, "{same}": files.node}
    before = shown(served)
    with pytest.raises(KafkaException, match=reason.replace(".", r"\.")) as refused:
        alter(served, name, str(given.get(value, value)))
    assert PASSWORD not in str(refused.value)
    assert shown(served) == before
