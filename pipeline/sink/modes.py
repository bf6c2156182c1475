"""The modes of the sink: records of topics, or an archive of files.

Source: docs/spec/pipeline.md §2 and §3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from barnabas.pipeline.source.errors import BadOption
from barnabas.pipeline.source.spark_options import SparkOptions

from .archive_writer import ArchiveWriter, archive_options
from .archive_writer import check_columns as check_archive_columns
from .topic_options import check_columns, topic_sink_options
from .topic_writer import TopicStreamWriter, TopicWriter
from .transactional_writer import TransactionalStreamWriter

TOPIC: Final = "topic"
ARCHIVE: Final = "archive"

Options = Mapping[str, str]


def batch_writer(options: Options, schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """The writer of a frame that is no stream; raises BadOption."""
    if _mode(options) != TOPIC:
        raise BadOption("mode", "an archive is written by a stream, which may be AvailableNow")
    if overwrite:
        raise BadOption("mode", "a topic cannot be overwritten; say mode('append')")
    topic = topic_sink_options(options, is_stream=False)
    check_columns(schema, topic.topic)
    return TopicWriter(topic)


def stream_writer(options: Options, schema: StructType) -> DataSourceStreamWriter:
    """The writer of a stream; raises BadOption."""
    if _mode(options) == ARCHIVE:
        check_archive_columns(schema)
        return ArchiveWriter(archive_options(options))
    topic = topic_sink_options(options, is_stream=True)
    check_columns(schema, topic.topic)
    if topic.transactions is None:
        return TopicStreamWriter(topic)
    writer = TransactionalStreamWriter(topic)
    writer.finish_decided()
    return writer


def _mode(options: Options) -> str:
    mode = (SparkOptions(options).text("mode") or TOPIC).lower()
    if mode not in (TOPIC, ARCHIVE):
        raise BadOption("mode", f"{mode} is neither {TOPIC} nor {ARCHIVE}")
    return mode
