"""Rows written as records of topics, from frames and from streams.

A stream's batch that runs again after a crash writes nothing twice as long as its rows come in
the same order again, which they do unless something between source and sink shuffles them.
Source: docs/spec/pipeline.md §2 and §3.1 (sink).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.pipeline.blocking_client import BlockingClient, client_for
from barnabas.pipeline.source.errors import BadOption

from .idempotent_sender import IdempotentSender, ProducerIdentity, new_identity
from .ledger import Ledger
from .record_columns import RecordColumns
from .topic_options import TopicSinkOptions

if TYPE_CHECKING:
    from barnabas.protocol.records.record import HeaderPair

_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """How many records one task wrote, or found written."""

    records: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a frame; a task that fails and runs again may write its rows twice."""

    def __init__(self, options: TopicSinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task, on an executor."""
        client = client_for(*self._options.address)
        identity = client.run(new_identity(client.cluster))
        return _sent(iterator, self._options, client, identity, is_second_run=False)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, each batch once; Spark makes a new one of these for every batch."""

    def __init__(self, options: TopicSinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task, on an executor; those that were sent before only checked."""
        client = client_for(*self._options.address)
        if not self._options.is_idempotent:
            identity = client.run(new_identity(client.cluster))
            return _sent(iterator, self._options, client, identity, is_second_run=False)
        ledger, batch, task = self._ledger(), batch_number(), task_number()
        if ledger.is_done(batch):
            return Written(0)
        known = ledger.identity(batch, task)
        identity = known or client.run(new_identity(client.cluster))
        if known is None:
            ledger.note(batch, task, identity)
        return _sent(iterator, self._options, client, identity, is_second_run=known is not None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remember that everything of the batch is there."""
        if self._options.is_idempotent:
            self._ledger().note_done(batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave what is there: the batch runs again and goes on behind it."""

    def _ledger(self) -> Ledger:
        assert self._options.ledger is not None, "the parser saw to it"
        return Ledger(self._options.ledger)


def _sent(
    batches: Iterator[pa.RecordBatch],
    options: TopicSinkOptions,
    client: BlockingClient,
    identity: ProducerIdentity,
    *,
    is_second_run: bool,
) -> Written:
    sender = IdempotentSender(
        client,
        identity,
        is_second_run=is_second_run,
        codec=options.codec,
        batch_bytes=options.batch_bytes,
        timeout_ms=options.timeout_ms,
        task=task_number(),
    )
    for batch in batches:
        add_rows(sender, batch, options.topic)
    sender.finish()
    return Written(sender.sent)


def add_rows(sender: IdempotentSender, batch: pa.RecordBatch, topic: str | None) -> None:
    """Hand rows to a sender, in columns where one topic gets them all and none is unusual.

    Raises KafkaError, and BadOption without a topic.
    """
    columns = RecordColumns.of(batch) if topic is not None and batch.num_rows else None
    if topic is not None and columns is not None:
        sender.add_columns(topic, columns)
    else:
        for row in rows_of(batch, topic):
            sender.add(*row)


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[Any, ...]]:
    """Topic, partition, key, value and headers of each row; raises BadOption without a topic."""
    names = batch.schema.names

    def column(name: str) -> Sequence[Any]:
        if name not in names:
            return [None] * batch.num_rows
        found = batch.column(name)
        if name in ("key", "value"):
            found = found.cast(pa.binary())
        values: Sequence[Any] = found.to_pylist()
        return values

    topics = [topic] * batch.num_rows if topic is not None else column("topic")
    headers = [_headers(cell) for cell in column("headers")]
    for row in zip(
        topics, column("partition"), column("key"), column("value"), headers, strict=True
    ):
        if row[0] is None:
            raise BadOption("topic", "is null in a row")
        yield row


def _headers(found: Sequence[dict[str, Any]] | None) -> tuple[HeaderPair, ...]:
    return tuple((header["key"], header["value"]) for header in found) if found else ()


def batch_number() -> int:
    """The batch that the running task writes; raises RuntimeError outside of a stream."""
    context = TaskContext.get()
    found = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if found is None:
        raise RuntimeError("Spark did not tell which batch this is; say idempotent=false")
    return int(found)


def task_number() -> int:
    """Which of its batch's tasks is running; the same rows have the same number again."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
