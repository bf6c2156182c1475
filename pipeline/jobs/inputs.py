"""Where jobs read commits, records and the edges of logs: from a cluster, or from files.

Source: docs/spec/pipeline.md §4 (common input columns) and §5.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from barnabas.client.cluster import TopicPartition
from barnabas.client.os_errors import describe_os_error
from barnabas.client.properties_file import read_client_properties
from barnabas.client.zookeeper.session_security import ZooKeeperSecurity
from barnabas.pipeline.blocking_client import BlockingClient, client_for
from barnabas.pipeline.cluster_requests import offsets_at, partitions_of
from barnabas.pipeline.jobs.history.offsets_for_times import Logs
from barnabas.pipeline.jobs.history.offsets_for_times import logs_of as logs_of_records
from barnabas.pipeline.jobs.spark_session.persisted_frames import PersistedFrames
from barnabas.pipeline.source.address import (
    COMMAND_CONFIG,
    ZOOKEEPER_SECURITY,
    ClusterAddress,
    address_of,
    read_zookeeper_security,
)
from barnabas.pipeline.source.errors import BadOption
from barnabas.pipeline.source.spark_options import SparkOptions
from barnabas.protocol.settings import ConfigError

FORMAT: Final = "barnabas"
_COMMIT_COLUMNS: Final = (
    "group,topic,partition,offset,metadata,commit_ts,source_offset,source_timestamp"
)
_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
_CONFIG_VARIABLE: Final = "BARNABAS_COMMAND_CONFIG"
_SECURITY: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.", *ZOOKEEPER_SECURITY)
_DEFAULT: Final = "localhost:9092"
_LATEST: Final = -1
_EARLIEST: Final = -2


class UsageProblem(Exception):  # noqa: N818 - says what it is
    """What was asked for contradicts itself, or leads nowhere: exit code 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """Where to read, and which part of it.

    ``commits`` and ``records`` name Parquet files that are read instead of the cluster,
    ``segments`` log directories. Options of the data source go into ``options``.
    """

    bootstrap: str = ""
    commits: str = ""
    records: str = ""
    segments: Sequence[str] = ()
    groups: str = ""
    """A pattern that is found in the names of groups wanted."""
    topics: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_offline(self) -> bool:
        """No cluster is asked for anything."""
        return bool(self.commits or self.segments)

    @property
    def address(self) -> ClusterAddress:
        """Where the cluster is and who we are; raises UsageProblem."""
        try:
            return address_of(self.bootstrap, self.options)
        except BadOption as problem:
            raise UsageProblem(str(problem)) from None

    @property
    def security(self) -> Mapping[str, str]:
        """Those of the options that say how clusters are spoken to."""
        return {
            name: value
            for name, value in self.options.items()
            if name.startswith(_SECURITY) or name == COMMAND_CONFIG
        }

    @property
    def zookeeper_security(self) -> ZooKeeperSecurity:
        """How ZooKeeper is spoken to, and as whom; raises UsageProblem."""
        try:
            return read_zookeeper_security(SparkOptions(self.options))
        except BadOption as problem:
            raise UsageProblem(str(problem)) from None

    @property
    def client(self) -> BlockingClient:
        """What this process asks the cluster with."""
        return client_for(*self.address)


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap`` and ``--cluster``, as other commands have them, and data source options."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: ${_VARIABLE}, or {_DEFAULT})",
    )
    where.add_argument(
        "--cluster",
        type=Path,
        metavar="DIR",
        help="the data directory of a running `barnabas up`, which knows its brokers",
    )
    add_command_config(parser)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="an option for the data source, such as kafka.fetch.max.wait.ms=100",
    )


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """``--command-config``, as other commands have it."""
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client.properties with security.protocol, sasl.* and ssl.*, at the same path on "
        f"every machine of Spark (default: ${_CONFIG_VARIABLE})",
    )


def command_config_of(named: Path | None) -> dict[str, str]:
    """As an option of the data source; none where neither was typed nor is in the environment."""
    found = named or os.environ.get(_CONFIG_VARIABLE)
    return {COMMAND_CONFIG: str(Path(found).absolute())} if found else {}


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """The cluster, or files instead of it, and patterns for groups and topics."""
    add_cluster_arguments(parser)
    files = parser.add_argument_group("files instead of the cluster")
    files.add_argument("--commits", default="", metavar="PATH", help="decoded commits as Parquet")
    files.add_argument(
        "--records", default="", metavar="PATH",
        help="topic, partition, offset and timestamp of records as Parquet",
    )  # fmt: skip
    files.add_argument(
        "--segments", action="append", default=[], metavar="DIR", help="log directories of nodes"
    )
    add_patterns(parser)


def add_patterns(parser: argparse.ArgumentParser) -> None:
    """Which groups and which topics."""
    parser.add_argument("--groups", default="", type=_pattern, metavar="RE", help="groups wanted")
    parser.add_argument("--topics", default="", type=_pattern, metavar="RE", help="topics wanted")


def source_of(chosen: argparse.Namespace) -> JobSource:
    """What was typed; raises UsageProblem."""
    files = [getattr(chosen, name, "") for name in ("commits", "segments")]
    config = {} if any(files) else command_config_of(chosen.command_config)
    found = JobSource(
        bootstrap=bootstrap_of(chosen, config),
        commits=getattr(chosen, "commits", ""),
        records=getattr(chosen, "records", ""),
        segments=tuple(getattr(chosen, "segments", ())),
        groups=chosen.groups,
        topics=chosen.topics,
        options={**config, **dict(chosen.option)},
    )
    if found.commits and found.segments:
        raise UsageProblem("say --commits or --segments, not both")
    if found.commits and not found.records:
        raise UsageProblem("--commits needs --records: what the log looked like then")
    return found


def bootstrap_of(chosen: argparse.Namespace, config: Mapping[str, str]) -> str:
    """The addresses to ask first: as typed, of the cluster named, of the file, of the environment.

    ``config`` names the file, if there is one. Raises UsageProblem.
    """
    if chosen.bootstrap is not None:
        return str(chosen.bootstrap)
    if chosen.cluster is None:
        return _named_in(config) or os.environ.get(_VARIABLE) or _DEFAULT
    description = chosen.cluster / "cluster.json"
    try:
        return str(json.loads(description.read_text())["bootstrap"])
    except OSError as error:
        raise UsageProblem(describe_os_error(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageProblem(f"{description} is no description of a cluster") from None


def _named_in(config: Mapping[str, str]) -> str | None:
    if COMMAND_CONFIG not in config:
        return None
    try:
        return read_client_properties(Path(config[COMMAND_CONFIG])).bootstrap
    except ConfigError as error:
        raise UsageProblem(str(error)) from None


def commits_of(spark: SparkSession, source: JobSource, persisted: PersistedFrames) -> DataFrame:
    """group, topic, partition, offset (null: forgotten), metadata, ts_ms, source_offset.

    Jobs walk over them several times: what must be decoded, or may grow meanwhile, is ``kept``.
    """
    if source.commits:
        found = spark.read.parquet(source.commits)
    else:
        found = reader(spark, source, mode="commits").option("columns", _COMMIT_COLUMNS).load()
    at = F.coalesce("commit_ts", "source_timestamp")
    chosen = found.select(
        "group",
        "topic",
        "partition",
        "offset",
        "metadata",
        F.unix_millis(at).alias("ts_ms"),
        "source_offset",
    )
    matching = _matching(chosen, source)
    return matching if source.commits else persisted.persist(matching)


def logs_of(
    spark: SparkSession, source: JobSource, topics: Sequence[str], persisted: PersistedFrames
) -> Logs:
    """The logs of those of ``topics`` that are there still: their records, and where they end.

    Leaders say where, or the records of files show it. Raises KafkaError.
    """
    there = existing_topics(source, topics)
    records = records_of(spark, source, there)
    if not source.records:
        records = persisted.persist(records)
    return logs_of_records(records, None if source.is_offline else log_edges(source, there))


def records_of(spark: SparkSession, source: JobSource, topics: Sequence[str]) -> DataFrame:
    """topic, partition, offset and ts_ms of every record of these topics; no keys, no values."""
    if source.records:
        found = spark.read.parquet(source.records)
    elif not topics:
        return spark.createDataFrame([], "topic string, partition int, offset bigint, ts_ms bigint")
    else:
        asked = reader(spark, source, mode="segments" if source.segments else "topic")
        asked = asked.option("columns", "topic,partition,offset,timestamp")
        found = asked.option("subscribe", ",".join(sorted(topics))).load()
    ts_ms = "ts_ms" if "ts_ms" in found.columns else F.unix_millis("timestamp").alias("ts_ms")
    return found.select("topic", "partition", "offset", ts_ms).where(F.col("topic").isin(*topics))


def log_edges(source: JobSource, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
    """Where logs begin and end now; raises KafkaError."""

    async def ask() -> dict[TopicPartition, tuple[int, int]]:
        cluster = source.client.cluster
        topic_partitions = await partitions_of(cluster, topics)
        starts = await offsets_at(cluster, dict.fromkeys(topic_partitions, _EARLIEST))
        ends = await offsets_at(cluster, dict.fromkeys(topic_partitions, _LATEST))
        return {
            topic_partition: (starts[topic_partition], ends[topic_partition])
            for topic_partition in topic_partitions
        }

    return source.client.run(ask()) if topics else {}


def existing_topics(source: JobSource, topics: Sequence[str]) -> list[str]:
    """Those that the cluster has: commits outlive topics. Files have whatever they have."""
    if source.is_offline:
        return sorted(topics)

    async def ask() -> set[str]:
        answer = await source.client.cluster.metadata()
        return {topic.name or "" for topic in answer.topics if not topic.error_code}

    return sorted(source.client.run(ask()) & set(topics))


def reader(spark: SparkSession, source: JobSource, *, mode: str) -> Any:
    """A reader of the data source with the options that everything needs."""
    made = spark.read.format(FORMAT).option("mode", mode)
    made = made.option("kafka.isolation.level", "read_committed")
    if source.segments:
        made = made.option("path", ",".join(source.segments))
    else:
        made = made.option("kafka.bootstrap.servers", source.bootstrap)
    for name, value in source.options.items():
        made = made.option(name, value)
    return made


def _matching(frame: DataFrame, source: JobSource) -> DataFrame:
    for name in ("group", "topic"):
        pattern = source.groups if name == "group" else source.topics
        if pattern:
            frame = frame.where(F.col(name).rlike(pattern))
    return frame


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    return text


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text} must read NAME=VALUE")
    return name, value
