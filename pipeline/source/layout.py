"""The columns of each mode, as Spark is told them and as Arrow batches must have them.

Spark compares the schema of the first Arrow batch only, so every batch is built from these and
from nothing else. Source: docs/spec/pipeline.md §1.3 (traps 2 and 3), §3.2 and §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from .errors import BadOption

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column: its name, its type in Spark's words, and in Arrow's."""

    name: str
    spark: str
    arrow: pa.DataType


class Layout(NamedTuple):
    """The columns of a frame in their order; all of them may be null."""

    columns: tuple[Column, ...]

    @property
    def spark(self) -> str:
        """The schema as Spark's own notation has it."""
        return ", ".join(f"`{column.name}` {column.spark}" for column in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        """The schema of every Arrow batch."""
        return pa.schema([pa.field(column.name, column.arrow) for column in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(column.name for column in self.columns)

    def chosen(self, names: Sequence[str]) -> Layout:
        """These columns only, in the order asked for; raises BadOption for a name it has not."""
        by_name = {column.name.lower(): column for column in self.columns}
        for name in names:
            if name.lower() not in by_name:
                raise BadOption("columns", f"{name} is none of {', '.join(self.names)}")
        if len({name.lower() for name in names}) < len(names):
            raise BadOption("columns", "a column is named twice")
        return Layout(tuple(by_name[name.lower()] for name in names))


_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_MEMBER: Final = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("host", pa.string()),
    ]
)

_TOPIC: Final = Column("topic", "STRING", pa.string())
_PARTITION: Final = Column("partition", "INT", pa.int32())
_OFFSET: Final = Column("offset", "BIGINT", pa.int64())
_GROUP: Final = Column("group", "STRING", pa.string())
_SOURCE: Final = (
    Column("source_partition", "INT", pa.int32()),
    Column("source_offset", "BIGINT", pa.int64()),
    Column("source_timestamp", "TIMESTAMP", TIMESTAMP),
)

RECORDS: Final = Layout(
    (
        Column("key", "BINARY", pa.binary()),
        Column("value", "BINARY", pa.binary()),
        _TOPIC,
        _PARTITION,
        _OFFSET,
        Column("timestamp", "TIMESTAMP", TIMESTAMP),
        Column("timestampType", "INT", pa.int32()),
    )
)
"""The schema of Spark's own Kafka connector: names, order and types."""

HEADERS: Final = Column(
    "headers",
    "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>",
    pa.list_(pa.field("element", _HEADER)),
)
RECORDS_WITH_HEADERS: Final = Layout((*RECORDS.columns, HEADERS))

COMMITS: Final = Layout(
    (
        _GROUP,
        _TOPIC,
        _PARTITION,
        _OFFSET,
        Column("leader_epoch", "INT", pa.int32()),
        Column("metadata", "STRING", pa.string()),
        Column("commit_ts", "TIMESTAMP", TIMESTAMP),
        Column("expire_ts", "TIMESTAMP", TIMESTAMP),
        Column("is_tombstone", "BOOLEAN", pa.bool_()),
        *_SOURCE,
    )
)
"""Offset commits out of ``__consumer_offsets``; of a tombstone only the key is known."""

GROUPS: Final = Layout(
    (
        _GROUP,
        Column("protocol_type", "STRING", pa.string()),
        Column("generation", "INT", pa.int32()),
        Column("protocol", "STRING", pa.string()),
        Column("leader", "STRING", pa.string()),
        Column("state_ts", "TIMESTAMP", TIMESTAMP),
        Column(
            "members",
            "ARRAY<STRUCT<`member_id`: STRING, `instance_id`: STRING, `client_id`: STRING, "
            "`host`: STRING>>",
            pa.list_(pa.field("element", _MEMBER)),
        ),
        Column("is_tombstone", "BOOLEAN", pa.bool_()),
        *_SOURCE,
    )
)
"""The metadata of groups out of ``__consumer_offsets``, each time a group changed."""

ZOOKEEPER_OFFSETS: Final = Layout(
    (
        _GROUP,
        _TOPIC,
        _PARTITION,
        _OFFSET,
        Column("modified", "TIMESTAMP", TIMESTAMP),
        Column("version", "INT", pa.int32()),
        Column("owner", "STRING", pa.string()),
    )
)
"""Offsets that classic consumers keep in ZooKeeper; the owner is null when nobody consumes."""
