"""archive and restore: what was in a topic is in the archive, and in another topic again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.frames import read_archive
from barnabas.pipeline.jobs import archive, restore
from barnabas.pipeline.jobs.archive import CHECK, ONCE, REPAIR, ArchiveConfig
from barnabas.pipeline.jobs.inputs import JobSource
from barnabas.pipeline.jobs.reports.report import Report
from barnabas.pipeline.jobs.restore import RestoreConfig
from tests.harness.deployments import is_apache_kafka
from tests.harness.steady_settings import STEADY
from tests.harness.transaction_data import TOPIC, shown
from tests.harness.transaction_data import restore as restore_golden
from tests.pipeline.new_topics import create_topic
from tests.pipeline.slow_machine import patiently


@pytest.mark.skipif(is_apache_kafka(), reason="takes a directory over from Kafka")
def test_an_archive_holds_nothing_of_transactions_that_were_aborted_or_are_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    restore_golden(tmp_path)
    out = str(tmp_path / "archive")
    with Cluster(1, tmp_path, settings=STEADY) as cluster:
        source = JobSource(bootstrap=cluster.bootstrap)
        config = ArchiveConfig(topic=TOPIC, out=out, group="archive", source=source, task=ONCE)
        report = patiently(lambda: archive.run(spark, config))

    assert report.exit_code == 0
    rows = read_archive(spark, out).select("partition", "offset", "key", "value").collect()
    assert sorted(map(tuple, rows)) == [
        (one.partition, one.offset, one.key, one.value) for one in shown("read_committed")
    ]


@pytest.mark.nightly
def test_a_topic_goes_into_an_archive_and_back_into_a_topic(
    spark: SparkSession,
    cluster: Cluster,
    client: BlockingClient,
    filled: Callable[..., str],
    read: Callable[..., DataFrame],
    group: str,
    tmp_path: Path,
) -> None:
    topic = filled(50)
    out = str(tmp_path / "archive")
    source = JobSource(bootstrap=cluster.bootstrap)

    def archived(task: str) -> Report:
        config = ArchiveConfig(topic=topic, out=out, group=group, source=source, task=task)
        return patiently(lambda: archive.run(spark, config))

    report = archived(ONCE)
    assert report.figures["records"] == 50
    assert report.exit_code == 0
    back = {TopicPartition(topic, 0): 1}
    client.run(cluster_requests.commit(client.cluster, group, back))
    assert archived(CHECK).exit_code == 1
    archived(REPAIR)
    assert archived(CHECK).exit_code == 0
    create_topic(cluster.bootstrap, f"{topic}-copy", 2)
    config = RestoreConfig(archive=out, to=f"{topic}-copy", source=source, keeps_partitions=True)
    assert restore.run(spark, config).figures == {"records": 50, "written": "yes"}
    names = ["key", "value", "partition", "offset"]
    copied, original = (
        sorted(map(tuple, read(subscribe=wanted).select(*names).collect()))
        for wanted in (f"{topic}-copy", topic)
    )
    assert copied == original
    shutil.rmtree(out)
