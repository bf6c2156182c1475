"""Clients that others wrote, over TLS: with and without certificates, and refused (S7, S9, S79)."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer

from barnabas.client import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    SyncConsumer,
    SyncProducer,
)
from barnabas.client.errors import KafkaError
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from tests.harness.java_tools import CONSUMER, JavaTools
from tests.harness.kafka_python_client import FRESH, KafkaConsumer, KafkaProducer, KafkaPythonError
from tests.harness.refused_sockets import collect_refused_sockets
from tests.harness.running_nodes import running
from tests.harness.steady_settings import STEADY
from tests.harness.tls_files import PASSWORD, USER, TlsFiles

COUNT: Final = 20
MECHANISM: Final = "SCRAM-SHA-512"
WAIT_S: Final = 180.0
REFUSED_MS: Final = 5_000
RECORDS: Final = [f"record {number}".encode() for number in range(COUNT)]


@dataclass(frozen=True)
class Served:
    """One node with three listeners: clear, TLS, and TLS that asks for certificates."""

    files: TlsFiles
    encrypted: str
    mutual: str
    login: str
    elsewhere: str
    """Its certificate is of another host."""
    log: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("tls")
    files = TlsFiles(directory)
    ports = free_ports(5)
    names = ("PLAINTEXT", "SSL", "MUTUAL", "LOGIN", "ELSEWHERE")
    listeners = dict(zip(names, ports, strict=True))
    settings = {
        **STEADY,
        "port": str(ports[0]),
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,LOGIN:SASL_SSL,ELSEWHERE:SSL"
        ),
        **files.server(),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.login.sasl.enabled.mechanisms": MECHANISM,
        "listener.name.elsewhere.ssl.keystore.location": str(files.elsewhere),
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(directory / "node", zookeeper.hosts, settings=settings)
        _make_user(zookeeper.hosts)
        with running(node):
            at = {name: f"{LOOPBACK}:{port}" for name, port in listeners.items()}
            log = directory / "node" / "node.log"
            yield Served(files, at["SSL"], at["MUTUAL"], at["LOGIN"], at["ELSEWHERE"], log)


def _make_user(zookeeper: str) -> None:
    command = [sys.executable, "-m", "barnabas.console", "users", "set", USER]
    subprocess.run(
        [*command, "--zookeeper", zookeeper], input=f"{PASSWORD}\n", text=True, check=True
    )


@dataclass(frozen=True)
class Tls:
    """How a client is set up."""

    trust: Path
    key: Path | None = None
    chain: Path | None = None
    pem: Path | None = None
    password: str | None = None
    """Of USER, who then logs in inside of TLS."""

    @property
    def protocol(self) -> str:
        return "SSL" if self.password is None else "SASL_SSL"

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trust))
        if self.chain is not None:
            context.load_cert_chain(self.chain, self.key)
        return context


def known(files: TlsFiles) -> Tls:
    return Tls(files.trust, files.client_key, files.client_chain, files.client)


def nameless(files: TlsFiles) -> Tls:
    return Tls(files.trust)


def kafka_python(address: str, tls: Tls, topic: str, group: str, wait_ms: int) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap_servers": address,
        "security_protocol": tls.protocol,
        "ssl_cafile": str(tls.trust),
        "ssl_certfile": tls.chain and str(tls.chain),
        "ssl_keyfile": tls.key and str(tls.key),
    }
    if tls.password is not None:
        settings |= {
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": USER,
            "sasl_plain_password": tls.password,
        }
    producer = KafkaProducer(**settings, max_block_ms=wait_ms, bootstrap_timeout_ms=wait_ms)
    try:
        for future in [producer.send(topic, record) for record in RECORDS]:
            future.get(wait_ms / 1000)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(
        topic, **settings, **FRESH, group_id=group, auto_offset_reset="earliest"
    )
    try:
        found: list[bytes] = []
        ends = time.monotonic() + WAIT_S
        while len(found) < COUNT and time.monotonic() < ends:
            for records in consumer.poll(2000).values():
                found += [record.value for record in records]
        consumer.commit()
    finally:
        consumer.close()
    return found


def confluent(address: str, tls: Tls, topic: str, group: str, wait_ms: int) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": tls.protocol.lower(),
        "ssl.ca.location": str(tls.trust),
        "ssl.endpoint.identification.algorithm": "https",
    }
    if tls.chain is not None:
        settings |= {
            "ssl.certificate.location": str(tls.chain),
            "ssl.key.location": str(tls.key),
        }
    if tls.password is not None:
        settings |= {
            "sasl.mechanisms": MECHANISM,
            "sasl.username": USER,
            "sasl.password": tls.password,
        }
    failures: list[Any] = []
    producer = Producer({**settings, "message.timeout.ms": wait_ms})
    for record in RECORDS:
        producer.produce(topic, record, on_delivery=lambda error, _: failures.append(error))
    producer.flush(WAIT_S)
    for failure in filter(None, failures):
        raise KafkaException(failure)
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        ends = time.monotonic() + WAIT_S
        while len(found) < COUNT and time.monotonic() < ends:
            found += [message.value() or b"" for message in consumer.consume(COUNT, 1.0)]
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def aiokafka(address: str, tls: Tls, topic: str, group: str, wait_ms: int) -> list[bytes]:
    async def work() -> list[bytes]:
        settings: dict[str, Any] = {
            "bootstrap_servers": address,
            "security_protocol": tls.protocol,
            "ssl_context": tls.context(),
        }
        if tls.password is not None:
            settings |= {
                "sasl_mechanism": MECHANISM,
                "sasl_plain_username": USER,
                "sasl_plain_password": tls.password,
            }
        async with asyncio.timeout(WAIT_S):
            producer = AIOKafkaProducer(**settings, request_timeout_ms=wait_ms)
            try:  # not async with, which leaves a producer open that cannot be started
                await producer.start()
                for record in RECORDS:
                    await producer.send_and_wait(topic, record)
            finally:
                await producer.stop()
            consumer = AIOKafkaConsumer(
                topic, **settings, group_id=group, auto_offset_reset="earliest"
            )
            async with consumer:
                found = [(await consumer.getone()).value for _ in RECORDS]
                await consumer.commit()
        return found

    return asyncio.run(work())


def own(address: str, tls: Tls, topic: str, group: str, wait_ms: int) -> list[bytes]:
    settings: dict[str, Any] = {
        "security_protocol": tls.protocol,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(tls.trust),
    }
    if tls.pem is not None:
        settings |= {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(tls.pem)}
    if tls.password is not None:
        settings |= {
            "sasl_mechanism": MECHANISM,
            "sasl_username": USER,
            "sasl_password": tls.password,
        }
    producing = ProducerConfig(delivery_timeout_ms=wait_ms)
    with SyncProducer(address, producing, client=ClientConfig(**settings)) as producer:
        for record in RECORDS:
            producer.send(topic, record)
    config = ConsumerConfig(auto_offset_reset="earliest")
    client = ClientConfig(**settings)
    with SyncConsumer(address, topic, group=group, config=config, client=client) as consumer:
        found: list[bytes] = []
        ends = time.monotonic() + WAIT_S
        while len(found) < COUNT and time.monotonic() < ends:
            batch = consumer.next_batch(timeout_s=1.0)
            found += [] if batch is None else [record.value or b"" for record in batch]
        consumer.commit()
    return found


Client = Callable[[str, Tls, str, str, int], list[bytes]]
CLIENTS: Final[tuple[Client, ...]] = (kafka_python, confluent, aiokafka, own)
each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)


@each_client
def test_records_and_commits_pass_over_tls(
    served: Served, client: Client, topic: str, group: str
) -> None:
    tls = nameless(served.files)
    assert client(served.encrypted, tls, topic, group, int(WAIT_S * 1000)) == RECORDS


@each_client
def test_records_and_commits_pass_with_a_certificate_of_the_client(
    served: Served, client: Client, topic: str, group: str
) -> None:
    assert client(served.mutual, known(served.files), topic, group, int(WAIT_S * 1000)) == RECORDS


@each_client
def test_records_and_commits_pass_with_a_login_inside_of_tls(
    served: Served, client: Client, topic: str, group: str
) -> None:
    """SASL_SSL: the password is proved by SCRAM, and who listens sees neither."""
    tls = Tls(served.files.trust, password=PASSWORD)
    assert client(served.login, tls, topic, group, int(WAIT_S * 1000)) == RECORDS


@each_client
@pytest.mark.parametrize(
    "mistake",
    [
        "no certificate",
        "a stranger's certificate",
        "another authority",
        "another host",
        "a wrong password",
    ],
)
def test_a_client_is_refused_or_refuses_and_does_not_hang(
    served: Served, client: Client, mistake: str, topic: str, group: str
) -> None:
    files = served.files
    address, tls = {
        "no certificate": (served.mutual, nameless(files)),
        "a stranger's certificate": (
            served.mutual,
            Tls(files.trust, files.strange_key, files.strange_chain, files.strange),
        ),
        "another authority": (served.encrypted, Tls(files.strange_trust)),
        "another host": (served.elsewhere, nameless(files)),
        "a wrong password": (served.login, Tls(files.trust, password="wrong")),
    }[mistake]
    with pytest.raises((KafkaPythonError, KafkaException, AiokafkaError, KafkaError)):
        client(address, tls, topic, group, REFUSED_MS)
    collect_refused_sockets()  # kafka-python's; found later they would fail another test


@pytest.mark.parametrize("listener", ["encrypted", "mutual"])
def test_the_java_client_speaks_tls(
    served: Served, java: JavaTools, topic: str, tmp_path: Path, listener: str
) -> None:
    address = getattr(served, listener)
    file = served.files.java_client(tmp_path / "client.properties", is_known=listener == "mutual")
    text = "\n".join(record.decode() for record in RECORDS)
    java.run(
        java.producer,
        *("--bootstrap-server", address, "--topic", topic, "--producer.config", str(file)),
        given=text + "\n",
    )
    found = java.run(
        CONSUMER,
        *("--bootstrap-server", address, "--topic", topic, "--consumer.config", str(file)),
        *("--from-beginning", "--max-messages", str(COUNT), "--timeout-ms", "120000"),
    )
    assert found.split("\n")[:COUNT] == text.split("\n")


def test_the_name_in_the_certificate_is_told_as_java_prints_it(served: Served) -> None:
    """In the log of the node, where its own certificate is loaded (S10)."""
    assert "loaded certificate listener=MUTUAL name=CN=node,C=US" in served.log.read_text()
