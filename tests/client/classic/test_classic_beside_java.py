"""One group of our classic consumer and Kafka's own; the oldest of Kafka's alone.

Its jars come through Maven, once. Source: docs/spec/coordinator.md §6.1 and §6.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from barnabas.client import SyncProducer
from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.classic.kafka_stream import KafkaStream
from barnabas.client.producer.producer import Producer
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path
from tests.harness.needs import maven_jars
from tests.harness.steady_settings import STEADY

PARTITIONS = 6
STREAMS = 2
EACH = 240


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def command() -> list[str]:
    """Kafka 1.1.1's console consumer, or what comes before its arguments."""
    jars = maven_jars("kafka_2.12", "1.1.1")
    return [str(find_java()), "-Xmx128m", "-cp", class_path(jars), "kafka.tools.ConsoleConsumer"]


@contextlib.asynccontextmanager
async def java_member(
    command: Sequence[str], properties: Path, cluster: Cluster, topic: str, printed: list[int]
) -> AsyncIterator[None]:
    """Kafka's console consumer in its old form; at the end it is asked to stop, and does."""
    words = [*command, "--zookeeper", cluster.zookeeper, "--topic", topic]
    words += ["--consumer.config", str(properties)]
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.strip().isdigit():
                printed.append(int(line))  # noqa: PERF401 - counted while it goes on

    reading = asyncio.create_task(read())
    yield
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(180):
        await process.wait()
        await reading


async def eventually(ask: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not ask():  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.05)


async def journey(
    command: Sequence[str],
    cluster: Cluster,
    topic: str,
    settings: Mapping[str, str],
    properties: Path,
) -> tuple[list[int], list[int]]:
    """What each of the two read, while the other came, was there, and had gone."""
    ours: list[int] = []
    theirs: list[int] = []

    async def read(stream: KafkaStream) -> None:
        async for message in stream:
            ours.append(int(message.value))  # noqa: PERF401 - counted while it goes on

    async with ConsumerConnector(settings) as connector, Producer(cluster.bootstrap) as producer:
        streams = (await connector.create_message_streams({topic: STREAMS}))[topic]
        reading = [asyncio.create_task(read(stream)) for stream in streams]

        async def write(part: int) -> None:
            for number in range(part * EACH, (part + 1) * EACH):
                producer.send_soon(topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()
            await eventually(lambda: len(ours) + len(theirs) >= (part + 1) * EACH)

        await write(0)
        async with java_member(command, properties, cluster, topic, theirs):
            await eventually(lambda: len(connector.owned) == PARTITIONS * STREAMS // (STREAMS + 1))
            await write(1)
        await eventually(lambda: len(connector.owned) == PARTITIONS)
        await write(2)
    await asyncio.gather(*reading)
    return ours, theirs


@pytest.mark.parametrize(("storage", "strategy"), [("zookeeper", "range"), ("kafka", "roundrobin")])
async def test_a_mixed_group_reads_every_message_once(
    command: list[str], cluster: Cluster, tmp_path: Path, storage: str, strategy: str
) -> None:
    topic = await asyncio.to_thread(cluster.create_topic, f"mixed-{storage}", PARTITIONS)
    settings = {
        "zookeeper.connect": cluster.zookeeper,
        "zookeeper.session.timeout.ms": "10000",
        "group.id": f"group-{storage}",
        "auto.offset.reset": "smallest",
        "offsets.storage": storage,
        "partition.assignment.strategy": strategy,
        "rebalance.max.retries": "60",
    }
    properties = tmp_path / "consumer.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    ours, theirs = await journey(command, cluster, topic, settings, properties)
    assert theirs
    assert sorted(ours + theirs) == list(range(3 * EACH))


@pytest.fixture(scope="module")
def by_protocol() -> Iterator[Cluster]:
    """Its nodes' own listener is called by its protocol, as docs/client/classic.md says."""
    settings = {**STEADY, "inter.broker.listener.name": "SASL_PLAINTEXT"}
    with Cluster(brokers=1, settings=settings) as running:
        yield running


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.1.1"])
def test_consumers_that_take_names_of_listeners_for_protocols_read(
    by_protocol: Cluster, version: str
) -> None:
    """Those of Kafka 0.9 to 0.10.1 fail where a node has a listener of any other name."""
    jars = maven_jars("kafka_2.11", version)
    topic = by_protocol.create_topic(f"oldest-{version}", 1)
    with SyncProducer(by_protocol.bootstrap) as producer:
        for value in ("one", "two"):
            producer.send(topic, value)
    java = [str(find_java()), "-Xmx128m", "-cp", class_path(jars), "kafka.tools.ConsoleConsumer"]
    words = ["--zookeeper", by_protocol.zookeeper, "--topic", topic, "--from-beginning"]
    done = subprocess.run(
        [*java, *words, "--max-messages", "2"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[:2] == ["one", "two"], done.stdout + done.stderr
