"""The authority and the secret of delegation tokens are replaced under load; nothing is lost.

Source: docs/security.md, "Rotation"; docs/spec/security.md §1 (S12), §2 (S37).
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import AuthenticationFailed
from barnabas.client.producer.producer import Producer
from barnabas.client.properties_file import read_client_properties
from barnabas.console.__main__ import main
from barnabas.console.security.secret_files import PUBLIC_MODE, replace
from tests.harness.rotation import (
    TOPIC,
    Load,
    check_nothing_is_lost,
    committer,
    prepare,
    read_certificates_again,
    roll,
    shown,
)
from tests.harness.secured_cluster import START_S, USER, SecuredCluster
from tests.harness.waiting import eventually

NODES: Final = 3

pytestmark = pytest.mark.nightly


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path / "secured", NODES) as running:
        prepare(running)
        yield running


def test_the_authority_is_replaced_in_three_rounds(cluster: SecuredCluster) -> None:
    directory = cluster.directory
    load = Load(cluster)
    load.begin()
    former = _authority(directory)
    (directory / "authority").rename(directory / "authority-former")
    assert main(cluster.init_words) == 0  # makes what is missing: another authority
    new = _authority(directory)
    assert new != former

    trust(cluster, load, former + new)
    commit_some(cluster)
    assert main(["security", "renew", str(directory)]) == 0
    read_certificates_again(cluster)
    cluster.restart_zookeeper()
    load.go_on()
    for address in cluster.bootstrap.split(","):
        assert _is_of(shown(cluster, address), new)
    commit_some(cluster)
    trust(cluster, load, new)
    commit_some(cluster)

    for address in cluster.bootstrap.split(","):
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.get_server_certificate(_split(address), ca_certs=str(_kept(directory)))
    check_nothing_is_lost(cluster, load)


def _authority(directory: Path) -> str:
    return (directory / "authority" / "authority.pem").read_text()


def _kept(directory: Path) -> Path:
    return directory / "authority-former" / "authority.pem"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _is_of(certificate: bytes, authority: str) -> bool:
    made = x509.load_der_x509_certificate(certificate)
    try:
        made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))
    except Exception:  # noqa: BLE001 - of any other authority
        return False
    return True


def trust(cluster: SecuredCluster, load: Load, authorities: str) -> None:
    """Nodes, ZooKeeper, tools and clients; clients that read no file again begin anew."""
    for path in cluster.directory.rglob("truststore.pem"):
        replace(path, authorities, PUBLIC_MODE)
    read_certificates_again(cluster)
    cluster.restart_zookeeper()
    load.go_on()
    load.begin()


def commit_some(cluster: SecuredCluster) -> None:
    """A client of librdkafka, which reads its authority at the start."""
    with committer(cluster) as commits:
        eventually(lambda: commits.acknowledged > 20, within_s=START_S, what="commits")


def test_the_secret_of_tokens_is_replaced_and_former_tokens_end(cluster: SecuredCluster) -> None:
    load = Load(cluster)
    load.begin()
    roll(cluster, load, delegation__token__secret__key=secrets.token_hex(32))
    former = asyncio.run(token(cluster))
    asyncio.run(write(cluster, former))
    roll(cluster, load, delegation__token__secret__key=secrets.token_hex(32))
    with pytest.raises(AuthenticationFailed):
        asyncio.run(write(cluster, former))
    asyncio.run(write(cluster, asyncio.run(token(cluster))))
    load.sent += [b"by token"] * 2
    check_nothing_is_lost(cluster, load)


async def token(cluster: SecuredCluster) -> ClientConfig:
    """A login by a new token of the user."""
    client = read_client_properties(cluster.client(USER, "client.properties")).client
    async with Admin.of(cluster.bootstrap, client) as admin:
        made = await admin.create_delegation_token()
    password = base64.b64encode(made.hmac).decode()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    login = f'{module} username="{made.token_id}" password="{password}" tokenauth=true;'
    return ClientConfig(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=login,
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(cluster.client(USER, "truststore.pem")),
    )


async def write(cluster: SecuredCluster, client: ClientConfig) -> None:
    async with Producer(cluster.bootstrap, client=client) as producer:
        await producer.send(TOPIC, b"by token", partition=0)
