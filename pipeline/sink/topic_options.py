"""The options of a sink into topics, and the columns that its rows must have.

Source: docs/spec/pipeline.md §3.1 (sink); Kafka's KafkaWriter for what is asked of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from barnabas.pipeline.source.address import ClusterAddress, read_address
from barnabas.pipeline.source.errors import BadOption
from barnabas.pipeline.source.spark_options import SparkOptions
from barnabas.protocol.records.compression.codecs import NAMES

_TEXT_OR_BYTES: Final = (StringType, BinaryType)
_PREFIX: Final = "barnabas-sink"
_TIMEOUT_MS: Final = 900_000
"""The most that brokers allow unless they are set otherwise: batches may be large."""
_REFUSED: Final = {
    "kafka.key.serializer": "keys are written as they are, text as UTF-8",
    "kafka.value.serializer": "values are written as they are, text as UTF-8",
    "kafka.transactional.id": "each task has one of its own; say transactionalIdPrefix",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSinkOptions:
    """Where rows go and how."""

    address: ClusterAddress
    topic: str | None
    """None when each row has its own."""
    codec: int
    batch_bytes: int
    """A batch is sent when its records have so many bytes."""
    timeout_ms: int
    """How long a batch may take with all its retries."""
    ledger: str | None
    """Where a stream remembers what it has sent: its checkpoint."""
    is_idempotent: bool
    transactions: TransactionOptions | None
    """None for a sink without transactions."""


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """How the transactions of a sink are called, and how long one may take."""

    prefix: str
    timeout_ms: int


def topic_sink_options(options: Mapping[str, str], *, is_stream: bool) -> TopicSinkOptions:
    """Read the options of a sink into topics; raises BadOption."""
    spark_options = SparkOptions(options)
    for name, why in _REFUSED.items():
        spark_options.refuse(name, why)
    codec = spark_options.text("kafka.compression.type") or "none"
    if codec not in NAMES:
        raise BadOption("kafka.compression.type", f"{codec} is none of {', '.join(NAMES)}")
    found = TopicSinkOptions(
        address=read_address(spark_options),
        topic=spark_options.text("topic"),
        codec=NAMES[codec],
        batch_bytes=spark_options.count("kafka.batch.size", 512 << 10),
        timeout_ms=spark_options.count("kafka.delivery.timeout.ms", 120_000),
        ledger=spark_options.text("checkpointLocation"),
        is_idempotent=spark_options.flag("idempotent", default=True),
        transactions=_transactions(spark_options),
    )
    spark_options.text("includeHeaders")
    spark_options.refuse_unknown()
    if is_stream and found.is_idempotent and found.ledger is None:
        raise BadOption(
            "checkpointLocation",
            "must be an option of the stream, for the sink to know what it has sent before a "
            "crash; idempotent=false does without, and may write rows twice",
        )
    if found.transactions is not None and not found.is_idempotent:
        raise BadOption("idempotent", "a transaction writes nothing twice; say transactional=false")
    if found.transactions is not None and not is_stream:
        raise BadOption("transactional", "only a stream has batches that are transactions")
    return found


def _transactions(spark_options: SparkOptions) -> TransactionOptions | None:
    prefix = spark_options.text("transactionalIdPrefix") or _PREFIX
    timeout_ms = spark_options.count("kafka.transaction.timeout.ms", _TIMEOUT_MS)
    if not spark_options.flag("transactional", default=False):
        return None
    return TransactionOptions(prefix, timeout_ms)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise BadOption when rows of this schema cannot become records."""
    found = {field.name: field.dataType for field in schema.fields}
    if "value" not in found:
        raise BadOption("value", "the frame has no such column, and nothing else to write")
    for name in ("key", "value"):
        _expect(found, name, _TEXT_OR_BYTES, "STRING or BINARY")
    _expect(found, "topic", (StringType,), "STRING")
    _expect(found, "partition", (IntegerType,), "INT")
    if "headers" in found and not _are_headers(found["headers"]):
        raise BadOption("headers", "must be ARRAY<STRUCT<key: STRING, value: BINARY>>")
    if topic is None and "topic" not in found:
        raise BadOption("topic", "is missing, and the frame has no such column")


def _expect(
    found: Mapping[str, DataType], name: str, types: tuple[type[DataType], ...], expected: str
) -> None:
    if name in found and not isinstance(found[name], types):
        raise BadOption(name, f"the column is {found[name].simpleString()}, must be {expected}")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [field.dataType for field in kind.elementType.fields]
    return kind.elementType.fieldNames() == ["key", "value"] and (
        isinstance(fields[0], StringType) and isinstance(fields[1], BinaryType)
    )
