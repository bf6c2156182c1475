"""The fast reading of batches says what the careful one says, whatever they hold."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.consumed_records import Chunk, ConsumedRecord
from barnabas.client.consumer.fetched_batches import find_batches
from barnabas.client.errors import DecodingFailed
from barnabas.client.topology import TopicPartition
from barnabas.protocol.records import batch
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import Record

TOPIC_PARTITION = TopicPartition("t", 3)


def field(random: Random) -> bytes | None:
    size = random.choice((-1, 0, 1, 63, 64, 200, 8_191, 8_192, 20_000))
    return None if size < 0 else random.randbytes(size)


def made(seed: int) -> list[Record]:
    """Records of one batch, with gaps as compaction leaves them."""
    random = Random(seed)
    offset, records = random.randrange(1 << 40), []
    told = [("a", b"1"), ("", None)] if random.random() < 0.3 else []
    step = random.choice((1, 1, 90, 9_000))
    for _ in range(random.randrange(1, 80)):
        stamp = 1_000 + random.randrange(random.choice((1, 50, 100_000)))
        records.append(Record(offset, stamp, field(random), field(random), tuple(told)))
        offset += random.randrange(step) + 1
    return records


batches = st.integers(0, 1 << 32).map(made)
stamps = st.integers(1_000, 1_000_000)


def built(records: list[Record], **options: Any) -> bytes:
    return bytes(batch.build_batch_of(records, **options))


def expected(records: list[Record]) -> list[ConsumedRecord]:
    return [
        ConsumedRecord(TOPIC_PARTITION.topic, TOPIC_PARTITION.partition, *record)
        for record in records
    ]


@given(batches, st.sampled_from([0, 1, 2, 3, 4]), st.none() | stamps)
def test_records_are_what_was_written(
    records: list[Record], codec: int, append_time: int | None
) -> None:
    data = built(records, codec=codec, append_time=append_time)
    found = find_batches(data, records[0].offset)
    assert found.source is not None
    if append_time is not None:
        records = [record._replace(timestamp=append_time) for record in records]
    assert found.source.records(TOPIC_PARTITION) == expected(records)
    assert list(found.source.iterate(TOPIC_PARTITION)) == expected(records)
    assert found.source.values() == [record.value for record in records]
    assert found.source.count() == len(records)
    assert found.next_offset == records[-1].offset + 1


@given(batches, st.data())
def test_records_below_the_offset_asked_for_are_left_out(
    records: list[Record], data: st.DataObject
) -> None:
    start = data.draw(st.integers(records[0].offset, records[-1].offset))
    found = find_batches(built(records), start)
    assert found.source is not None
    wanted = [record for record in records if record.offset >= start]
    assert found.source.records(TOPIC_PARTITION) == expected(wanted)
    assert found.source.values() == [record.value for record in wanted]


@given(batches, batches, st.integers(1, 60))
def test_a_batch_that_is_cut_is_left_for_the_next_fetch(
    first: list[Record], second: list[Record], kept: int
) -> None:
    whole, cut = built(first), built(second)
    found = find_batches(whole + cut[:kept], first[0].offset)
    assert (found.next_offset, found.bytes_needed) == (first[-1].offset + 1, 0)
    alone = find_batches(cut[:kept], second[0].offset)
    assert alone.source is None
    assert alone.next_offset == second[0].offset
    assert alone.bytes_needed == (len(cut) if kept >= 12 else 2 * kept)


@given(batches, st.integers(1, 90))
def test_a_chunk_is_split_without_losing_or_repeating_a_record(
    records: list[Record], count: int
) -> None:
    found = find_batches(built(records), records[0].offset)
    assert found.source is not None
    chunk = Chunk(TOPIC_PARTITION, found.source, found.next_offset, 7, 99, 5)
    first, rest = chunk.split(count)
    assert len(first) == min(count, len(records))
    assert (first.leader_epoch, first.high_watermark, first.seek_id) == (7, 99, 5)
    together = list(first) + ([] if rest is None else list(rest))
    assert together == expected(records)
    if rest is not None:
        assert first.next_offset == rest.records()[0].offset
        assert rest.next_offset == found.next_offset


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_older_than_batches_are_read(magic: int, codec: int) -> None:
    records = [Record(offset, 1_000, b"k", b"%d" % offset) for offset in range(5)]
    data = bytes(encode_messages(records, magic, codec=codec))
    found = find_batches(data, 2)
    assert found.source is not None
    assert [record.value for record in found.source.records(TOPIC_PARTITION)] == [b"2", b"3", b"4"]
    assert found.source.values() == [b"2", b"3", b"4"]
    assert found.next_offset == 5


def test_corrupt_records_are_reported_with_the_offset_of_their_batch() -> None:
    data = bytearray(built([Record(40, 1, b"k", b"v")]))
    data[-4:] = b"\xff\xff\xff\xff"
    batch.reseal(data)
    found = find_batches(bytes(data), 40)
    assert found.source is not None
    with pytest.raises(DecodingFailed, match="t-3 at offset 40"):
        found.source.records(TOPIC_PARTITION)
