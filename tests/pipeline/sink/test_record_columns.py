"""Records taken in columns are those that would have been taken row by row, in the same batches."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.cluster import TopicPartition
from barnabas.pipeline.sink.idempotent_sender import (
    IdempotentSender,
    ProducerIdentity,
    _PartitionQueue,
)
from barnabas.pipeline.sink.record_columns import BytesColumn, RecordColumns, murmur2_of
from barnabas.pipeline.sink.topic_writer import add_rows, rows_of
from barnabas.protocol.hashing import murmur2
from barnabas.protocol.records.batch import HEADER_BYTES
from barnabas.protocol.records.section_check import survey

Batches = dict[TopicPartition, list[tuple[int, bytes]]]
PARTITIONS = 3


class Recorder(IdempotentSender):
    """Keeps the batches that it would send."""

    def __init__(self, batch_bytes: int) -> None:
        super().__init__(
            cast("Any", None),
            ProducerIdentity(1, 0),
            is_second_run=False,
            codec=0,
            batch_bytes=batch_bytes,
            timeout_ms=1,
            task=1,
        )
        self.batches: Batches = defaultdict(list)

    def _partitions(self, topic: str) -> int:
        self._counts[topic] = PARTITIONS
        return PARTITIONS

    def _dispatch(self, topic_partition: TopicPartition, queue: _PartitionQueue) -> None:
        body, count = queue.take()
        facts = survey(self._built(body, count, 0), HEADER_BYTES, count)
        assert facts.is_sequential
        self.batches[topic_partition].append((count, body))


def by_rows(given_batches: list[pa.RecordBatch], batch_bytes: int) -> Batches:
    sender = Recorder(batch_bytes)
    for batch in given_batches:
        for row in rows_of(batch, "topic"):
            sender.add(*row)
    sender.finish()
    return sender.batches


def as_given(given_batches: list[pa.RecordBatch], batch_bytes: int) -> Batches:
    sender = Recorder(batch_bytes)
    for batch in given_batches:
        add_rows(sender, batch, "topic")
    sender.finish()
    return sender.batches


@st.composite
def columns(draw: st.DrawFn, count: int) -> list[bytes | None]:
    kind = draw(st.sampled_from(["none", "equal", "ragged", "some null"]))
    if kind == "none":
        return [None] * count
    longest = draw(st.sampled_from([0, 3, 12, 63, 64, 200]))
    lengths = st.just(longest) if kind == "equal" else st.integers(0, longest)
    random = draw(st.randoms(use_true_random=False))
    found: list[bytes | None] = [random.randbytes(draw(lengths)) for _ in range(count)]
    if kind == "some null" and count:
        found[draw(st.integers(0, count - 1))] = None
    return found


@st.composite
def arrow_batches(draw: st.DrawFn) -> pa.RecordBatch:
    count = draw(st.sampled_from([0, 1, 7, 40, 90]))
    fields = {"value": pa.array(draw(columns(count)), pa.binary())}
    if draw(st.booleans()):
        fields["key"] = pa.array(draw(columns(count)), pa.binary())
    if draw(st.booleans()):
        numbers = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        fields["partition"] = pa.array(numbers, pa.int32())
    made = pa.RecordBatch.from_pydict(fields)
    return made.slice(draw(st.integers(0, count)))


@settings(deadline=None, max_examples=200)
@given(st.lists(arrow_batches(), max_size=4), st.sampled_from([1, 100, 900, 1 << 20]))
def test_columns_give_the_batches_that_rows_give(
    made: list[pa.RecordBatch], batch_bytes: int
) -> None:
    assert as_given(made, batch_bytes) == by_rows(made, batch_bytes)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193])
def test_offset_deltas_of_every_width_are_laid_out(count: int) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"%05d" % number for number in range(count)]})
    assert as_given([batch, batch], 1 << 30) == by_rows([batch, batch], 1 << 30)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_text_and_large_columns_are_bytes(kind: pa.DataType) -> None:
    texts = pa.array([f"{number:04d}" for number in range(30)]).cast(kind)
    batch = pa.RecordBatch.from_pydict({"key": texts, "value": texts})
    assert RecordColumns.of(batch) is not None
    assert as_given([batch], 500) == by_rows([batch], 500)


def test_rows_with_headers_or_some_nulls_are_taken_one_by_one() -> None:
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    headers = pa.array([None, [{"key": "h", "value": b"x"}]], kind)
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "headers": headers})
    assert RecordColumns.of(batch) is None
    assert RecordColumns.of(pa.RecordBatch.from_pydict({"value": [b"a", None]})) is None
    plain = pa.RecordBatch.from_pydict({"value": [b"%03d" % number for number in range(20)]})
    assert as_given([plain, batch, plain], 1 << 20) == by_rows([plain, batch, plain], 1 << 20)


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32))
def test_many_keys_hash_as_each_alone(length: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).bytes(20 * length)
    keys = [drawn[at * length : (at + 1) * length] for at in range(20)]
    column = BytesColumn.of(pa.array(keys, pa.binary()))
    hashed = murmur2_of(column.matrix(np.arange(20), length))
    assert hashed.tolist() == [murmur2(key) & 0xFFFFFFFF for key in keys]
