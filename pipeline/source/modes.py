"""The modes of the data source: which reader, which columns, which options.

Each mode imports what it alone needs: Spark starts a process for every query, which waits for it.
Source: docs/spec/pipeline.md §5.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from .errors import BadOption
from .layout import COMMITS, GROUPS, RECORDS, RECORDS_WITH_HEADERS, ZOOKEEPER_OFFSETS, Layout
from .options import topic_options
from .rows import Builder, RecordRows
from .spark_options import SparkOptions
from .topic_batch import FilteringTopicReader, TopicReader
from .topic_stream import TopicStreamReader

TOPIC: Final = "topic"
COMMITS_MODE: Final = "commits"
SEGMENTS: Final = "segments"
ZOOKEEPER: Final = "zookeeper"
_MODES: Final = (TOPIC, COMMITS_MODE, SEGMENTS, ZOOKEEPER)
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"

Options = Mapping[str, str]


def mode_of(options: Options) -> str:
    """The mode asked for, ``topic`` when none is; raises BadOption."""
    mode = (SparkOptions(options).text("mode") or TOPIC).lower()
    if mode not in _MODES:
        raise BadOption("mode", f"{mode} is none of {', '.join(_MODES)}")
    return mode


def layout_of(options: Options) -> Layout:
    """The columns of a frame."""
    spark_options = SparkOptions(options)
    mode = mode_of(options)
    if mode == ZOOKEEPER:
        whole = ZOOKEEPER_OFFSETS
    elif mode == COMMITS_MODE:
        whole = GROUPS if _reads_groups(spark_options) else COMMITS
    else:
        has_headers = spark_options.flag("includeHeaders", default=False)
        chosen = {name.lower() for name in spark_options.texts("columns")}
        whole = RECORDS_WITH_HEADERS if has_headers or "headers" in chosen else RECORDS
    columns = spark_options.texts("columns")
    return whole.chosen(columns) if columns else whole


def batch_reader(options: Options) -> DataSourceReader:
    """The reader of a frame that is no stream."""
    mode, layout = mode_of(options), layout_of(options)
    if mode == ZOOKEEPER:
        from .zookeeper_reader import ZooKeeperReader, zookeeper_options

        return ZooKeeperReader(zookeeper_options(options), layout)
    builder = _builder(options, layout)
    if mode == SEGMENTS or (mode == COMMITS_MODE and SparkOptions(options).is_given("path")):
        from .segment_reader import FilteringSegmentReader, SegmentReader, segment_options

        takes_filters = mode == SEGMENTS and _takes_filters()
        kind = FilteringSegmentReader if takes_filters else SegmentReader
        return kind(segment_options(options), builder)
    is_decoded = mode == COMMITS_MODE
    topic = topic_options(options, is_stream=False, only_offsets_topic=is_decoded)
    if not is_decoded and _takes_filters():
        return FilteringTopicReader(topic, builder)
    return TopicReader(topic, builder)


def stream_reader(options: Options) -> DataSourceStreamReader:
    """The reader of a stream."""
    mode = mode_of(options)
    if mode in (SEGMENTS, ZOOKEEPER):
        raise BadOption("mode", f"{mode} is read as a batch, not as a stream")
    is_decoded = mode == COMMITS_MODE
    topic = topic_options(options, is_stream=True, only_offsets_topic=is_decoded)
    return TopicStreamReader(topic, _builder(options, layout_of(options)))


def _builder(options: Options, layout: Layout) -> Builder:
    if mode_of(options) != COMMITS_MODE:
        return RecordRows(layout)
    from .commit_rows import CommitRows, GroupRows

    return GroupRows(layout) if _reads_groups(SparkOptions(options)) else CommitRows(layout)


def _reads_groups(spark_options: SparkOptions) -> bool:
    kind = spark_options.text("kind") or "offsets"
    if kind not in ("offsets", "groups"):
        raise BadOption("kind", f"{kind} is neither offsets nor groups")
    return kind == "groups"


def _takes_filters() -> bool:
    """Whether Spark is about to push filters: a reader that could is an error if it is not."""
    main = sys.modules.get("__main__")
    running = getattr(getattr(main, "__spec__", None), "name", None)
    return running == _PUSHDOWN_WORKER or _PUSHDOWN_WORKER in sys.modules
