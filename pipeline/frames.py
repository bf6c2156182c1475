"""Frames and streams in one call each, for notebooks and jobs; all options can be given.

``spark.read.format("barnabas")`` with the same options is what these do. Options whose names
have dots go into a mapping: ``options={"kafka.isolation.level": "read_committed"}``.
Source: docs/spec/pipeline.md §5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from .sink.archive_files import ArchiveFiles

FORMAT = "barnabas"

Options = Mapping[str, Any]


def read_topic(
    spark: SparkSession,
    topic: str,
    bootstrap: str,
    *,
    start: str = "earliest",
    end: str = "latest",
    columns: Iterable[str] = (),
    options: Options | None = None,
) -> DataFrame:
    """The records of a topic, or of several with commas between them.

    ``start`` is earliest, latest, ``group:<id>`` or offsets as JSON; ``end`` latest or JSON.
    """
    defaults = {"subscribe": topic, "startingOffsets": start, "endingOffsets": end}
    return _loaded(spark.read, bootstrap, defaults, columns, options)


def stream_topic(
    spark: SparkSession,
    topic: str,
    bootstrap: str,
    *,
    checkpoint: str,
    start: str = "latest",
    group: str | None = None,
    columns: Iterable[str] = (),
    options: Options | None = None,
) -> DataFrame:
    """A topic as a stream; ``checkpoint`` must be where the query's writer keeps its own.

    ``group`` is told how far the stream is.
    """
    defaults = {"subscribe": topic, "startingOffsets": start, "checkpointLocation": checkpoint}
    if group is not None:
        defaults["commitGroup"] = group
    return _loaded(spark.readStream, bootstrap, defaults, columns, options)


def read_commits(
    spark: SparkSession,
    bootstrap: str | None = None,
    *,
    path: str | None = None,
    kind: str = "offsets",
    columns: Iterable[str] = (),
    options: Options | None = None,
) -> DataFrame:
    """Offset commits, or with ``kind`` "groups" the groups, out of ``__consumer_offsets``.

    From the cluster at ``bootstrap``, or with no broker from the log directories at ``path``.
    """
    defaults = {"mode": "commits", "kind": kind}
    if path is not None:
        defaults["path"] = path
    return _loaded(spark.read, bootstrap, defaults, columns, options)


def stream_commits(
    spark: SparkSession,
    bootstrap: str,
    *,
    checkpoint: str,
    start: str = "earliest",
    kind: str = "offsets",
    columns: Iterable[str] = (),
    options: Options | None = None,
) -> DataFrame:
    """The same as a stream: every commit as it is made, before compaction removes it."""
    defaults = {
        "mode": "commits",
        "kind": kind,
        "startingOffsets": start,
        "checkpointLocation": checkpoint,
    }
    return _loaded(spark.readStream, bootstrap, defaults, columns, options)


def read_segments(
    spark: SparkSession,
    path: str,
    *,
    topic: str | None = None,
    columns: Iterable[str] = (),
    options: Options | None = None,
) -> DataFrame:
    """The records in log directories, with no broker running; ``path`` may have wildcards."""
    defaults = {"mode": "segments", "path": path}
    if topic is not None:
        defaults["subscribe"] = topic
    return _loaded(spark.read, None, defaults, columns, options)


def read_zookeeper_offsets(
    spark: SparkSession,
    zookeeper: str,
    *,
    groups: str = "",
    columns: Iterable[str] = (),
    options: Options | None = None,
) -> DataFrame:
    """The offsets of classic consumers; ``groups`` is a pattern found in the groups' names."""
    defaults = {"mode": "zookeeper", "zookeeper.connect": zookeeper, "groups": groups}
    return _loaded(spark.read, None, defaults, columns, options)


def write_topic(
    frame: DataFrame, bootstrap: str, topic: str | None = None, *, options: Options | None = None
) -> None:
    """Write rows as records; ``topic`` None takes each row's column of that name."""
    writer = frame.write.format(FORMAT).mode("append")
    for name, value in _sink(bootstrap, topic, options).items():
        writer = writer.option(name, str(value))
    writer.save()


def stream_to_topic(
    frame: DataFrame,
    bootstrap: str,
    topic: str | None = None,
    *,
    checkpoint: str,
    transactional: bool = False,
    options: Options | None = None,
) -> DataStreamWriter:
    """A writer of a stream into topics, each batch once; set its trigger and start it.

    ``transactional`` shows readers of committed records nothing of a batch before it is whole.
    """
    defaults = _sink(bootstrap, topic, options)
    if transactional:
        defaults = {"transactional": "true", **defaults}
    return _streaming(frame, checkpoint, defaults)


def stream_to_archive(
    frame: DataFrame,
    path: str,
    *,
    checkpoint: str,
    bootstrap: str | None = None,
    group: str | None = None,
    options: Options | None = None,
) -> DataStreamWriter:
    """A writer of a stream of records into an archive, exactly once; set its trigger and start it.

    ``group``, at ``bootstrap``, is told where each batch ends once it is archived.
    """
    defaults: dict[str, Any] = {"mode": "archive", "path": path}
    if group is not None:
        defaults |= {"commitGroup": group, "kafka.bootstrap.servers": bootstrap}
    return _streaming(frame, checkpoint, {**defaults, **(options or {})})


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """What is in an archive: the files that its manifests list, and no others.

    Raises FileNotFoundError for an archive without a row.
    """
    files = ArchiveFiles(path).files()
    if not files:
        raise FileNotFoundError(f"nothing is archived in {path}")
    return spark.read.parquet(*files)


def available_now(writer: DataStreamWriter) -> StreamingQuery:
    """Run a stream until it has done what is there now; raises what ended it earlier."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _loaded(
    reader: Any,
    bootstrap: str | None,
    defaults: Options,
    columns: Iterable[str],
    options: Options | None,
) -> DataFrame:
    reader = reader.format(FORMAT)
    whole = {**defaults, **(options or {})}
    if bootstrap is not None:
        whole["kafka.bootstrap.servers"] = bootstrap
    names = ",".join(columns)
    if names:
        whole["columns"] = names
    for name, value in whole.items():
        reader = reader.option(name, str(value))
    frame: DataFrame = reader.load()
    return frame


def _sink(bootstrap: str, topic: str | None, options: Options | None) -> dict[str, Any]:
    defaults = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
    return defaults if topic is None else {**defaults, "topic": topic}


def _streaming(frame: DataFrame, checkpoint: str, defaults: Options) -> DataStreamWriter:
    writer = frame.writeStream.format(FORMAT).option("checkpointLocation", checkpoint)
    for name, value in defaults.items():
        writer = writer.option(name, str(value))
    return writer
