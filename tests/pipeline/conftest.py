"""One Spark session and one cluster for everything here: starting Spark takes seconds."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from barnabas.console.development.cluster import Cluster
from barnabas.pipeline.blocking_client import BlockingClient, client_for, close_clients
from barnabas.pipeline.session import spark_session
from benchmarks.spark_connector import NoConnector, connector_jars
from tests.harness.confluent_client import Confluent
from tests.harness.kafka_alone import kafka_alone
from tests.harness.records import Sent
from tests.harness.steady_settings import STEADY
from tests.pipeline.new_topics import create_topic

HERE = Path(__file__).parent

Fill = Callable[..., str]
Options = Mapping[str, Any]

FEW_LOGS: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""A hundred logs that are made at the first transaction keep a busy machine for long."""


@pytest.fixture(scope="session")
def connector() -> list[Path] | NoConnector:
    """The jars of Spark's own Kafka connector, which must be there when the session starts."""
    try:
        return connector_jars()
    except NoConnector as missing:
        return missing


@pytest.fixture(scope="package")
def spark(connector: list[Path] | NoConnector) -> Iterator[SparkSession]:
    """Two cores, little memory, nothing on the screen."""
    jars = [] if isinstance(connector, NoConnector) else connector
    with tempfile.TemporaryDirectory(prefix="barnabas-spark-") as scratch:
        session = spark_session(
            "tests",
            "local[2]",
            {
                "spark.driver.memory": "768m",
                "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1",
                "spark.ui.enabled": "false",
                "spark.jars": ",".join(map(str, jars)),
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.pollingDelay": "20ms",
                # On a busy machine ten seconds pass between two batches: an idle trigger between
                # them would be among the progress that tests compare.
                "spark.sql.streaming.noDataProgressEventInterval": "1h",
                "spark.python.authenticate.socketTimeout": "120s",
                "spark.local.dir": scratch,
                "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            },
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Two nodes, so that partitions have different leaders."""
    with Cluster(2, settings={**STEADY, **FEW_LOGS}) as running:
        yield running
        close_clients()


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.kafka)])
def transactional(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a cluster that coordinates transactions: two nodes of ours; Kafka itself."""
    with ExitStack() as stack:
        if request.param == "ours":
            address = stack.enter_context(Cluster(2, settings={**STEADY, **FEW_LOGS})).bootstrap
        else:
            directory = tmp_path_factory.mktemp("kafka")
            address = stack.enter_context(kafka_alone(directory, **FEW_LOGS))
        yield address
        close_clients(address)


@pytest.fixture(scope="package")
def client(cluster: Cluster) -> BlockingClient:
    """What the pipeline itself asks the cluster with."""
    return client_for(cluster.bootstrap)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A name that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> Fill:
    """Creates the topic at the first call; each call appends records and gives the name."""
    client = Confluent()
    partitions: list[int] = []

    def fill(records: int | Sequence[Sent] = 0, count: int = 2, codec: str = "none") -> str:
        if not partitions:
            create_topic(cluster.bootstrap, topic, count)
            partitions.append(count)
        if isinstance(records, int):
            records = [
                Sent(partition=number % partitions[0], key=b"k%d" % number, value=b"v%d" % number)
                for number in range(records)
            ]
        if records:
            client.produce(cluster.bootstrap, topic, records, codec)
        return topic

    return fill


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Callable[..., DataFrame]:
    """A frame of our source; underscores stand for the dots in names of options."""
    return lambda **options: _told(spark.read, cluster, options).load()


@pytest.fixture
def read_stream(spark: SparkSession, cluster: Cluster) -> Callable[..., DataFrame]:
    """A stream of our source, as above."""
    return lambda **options: _told(spark.readStream, cluster, options).load()


def _told(reader: Any, cluster: Cluster, options: Options) -> DataFrameReader:
    reader = reader.format("barnabas").option("kafka.bootstrap.servers", cluster.bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), str(value))
    found: DataFrameReader = reader
    return found
