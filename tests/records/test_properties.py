"""Properties of the record formats that must hold whatever the bytes are."""

from __future__ import annotations

import struct

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec, compress, decompress
from barnabas.protocol.records.convert import down_convert, up_convert
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.produce_rules import InvalidRecords, ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.section_check import survey
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.varints import VARLONG_BYTES_MAX, decode_varint, encode_varint
from barnabas.protocol.records.walk import walk
from tests.records.vectors import SOUND, T0, of

fields = st.none() | st.binary(max_size=200)
timestamps = st.just(-1) | st.integers(T0 - 10**10, T0 + 10**10)
headers = st.lists(st.tuples(st.text(max_size=8), fields), max_size=3).map(tuple)
codecs = st.sampled_from(Codec)
old_codecs = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
RULES = ProduceRules()


@st.composite
def record_lists(draw: st.DrawFn, *, has_headers: bool = True) -> list[Record]:
    """Records in rising offsets, perhaps with gaps."""
    offset = draw(st.integers(0, 1 << 40))
    found = []
    for _ in range(draw(st.integers(1, 12))):
        extra = draw(headers) if has_headers else ()
        found.append(Record(offset, draw(timestamps), draw(fields), draw(fields), extra))
        offset += draw(st.sampled_from([1, 1, 1, 2, 100]))
    return found


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytearray:
    """The bytes with a few of them changed, cut out or doubled."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        assume(changed)
        at = draw(st.integers(0, len(changed) - 1))
        match draw(st.integers(0, 2)):
            case 0:
                changed[at] = draw(st.integers(0, 255))
            case 1:
                del changed[at : at + draw(st.integers(1, 8))]
            case _:
                changed[at:at] = draw(st.binary(min_size=1, max_size=8))
    return changed


@given(record_lists(), codecs)
def test_a_batch_reads_as_what_it_was_built_from(found: list[Record], codec: Codec) -> None:
    data = batch.build_batch_of(found, codec=codec)
    assert list(batch.records(data)) == found
    assert batch.crc_is_valid(data, 0, len(data))
    assert list(batch.iterate(data)) == [(0, len(data))]
    assert batch.next_offset(data) == found[-1].offset + 1
    assert batch.max_timestamp(data) == max(record.timestamp for record in found)


@given(st.lists(st.tuples(fields, fields), min_size=1, max_size=20), codecs)
def test_pairs_read_as_what_was_built(
    pairs: list[tuple[bytes | None, bytes | None]], codec: Codec
) -> None:
    data = batch.build_batch(pairs, timestamp_ms=T0, codec=codec)
    assert [(record.key, record.value) for record in batch.records(data)] == pairs


@given(record_lists(has_headers=False), old_codecs, st.sampled_from([0, 1]))
def test_messages_read_as_what_they_were_built_from(
    found: list[Record], codec: Codec, magic: int
) -> None:
    data = encode_messages(found, magic, codec=codec)
    read = [
        record for position, _ in batch.iterate(data) for record in batch.records(data, position)
    ]
    assert read == (found if magic else [record._replace(timestamp=-1) for record in found])


@given(record_lists(), old_codecs, st.sampled_from([0, 1]), st.integers(0, 3))
def test_down_conversion_keeps_key_value_and_offset(
    found: list[Record], codec: Codec, magic: int, skipped: int
) -> None:
    fetch_offset = found[min(skipped, len(found) - 1)].offset
    data = down_convert(batch.build_batch_of(found, codec=codec), magic, fetch_offset)
    read = [
        record for position, _ in batch.iterate(data) for record in batch.records(data, position)
    ]
    wanted = [record for record in found if codec or record.offset >= fetch_offset]
    assert [(r.offset, r.key, r.value) for r in read] == [
        (r.offset, r.key, r.value) for r in wanted
    ]
    assert [r.timestamp for r in read] == [r.timestamp if magic else -1 for r in wanted]


@given(record_lists(has_headers=False), old_codecs, st.sampled_from([0, 1]))
def test_up_conversion_keeps_order_key_and_value(
    found: list[Record], codec: Codec, magic: int
) -> None:
    prepared = prepare(
        encode_messages(found, magic, codec=codec), produce_version=2, rules=RULES, now_ms=T0
    )
    assert prepared
    assert list(batch.records(prepared.batch)) == [
        record._replace(offset=index, timestamp=record.timestamp if magic else -1)
        for index, record in enumerate(found)
    ]
    assert up_convert(found, codec=codec) == prepared.batch or not magic


@given(record_lists(), codecs, st.booleans())
def test_a_prepared_batch_is_prepared_already(
    found: list[Record], codec: Codec, is_stamped: bool
) -> None:
    """The leader's rewrite is a fixed point, and keeps every record."""
    data = up_convert(found, codec=codec)
    first = prepare(data, produce_version=9, rules=RULES, now_ms=T0)
    assert first
    assert first.batch == data
    rules = ProduceRules(timestamp_type="LogAppendTime") if is_stamped else RULES
    second = prepare(first.batch, produce_version=9, rules=rules, now_ms=T0 + 5)
    assert second
    assert [(r.key, r.value, r.headers) for r in batch.records(second.batch)] == [
        (r.key, r.value, r.headers) for r in found
    ]


@given(record_lists())
def test_the_survey_agrees_with_the_reader(found: list[Record]) -> None:
    data = batch.build_batch_of(found)
    facts = survey(data, batch.HEADER_BYTES, len(found))
    deltas = [record.timestamp - found[0].timestamp for record in found]
    offsets = [record.offset - found[0].offset for record in found]
    assert facts.is_sequential == (offsets == list(range(len(found))))
    assert (facts.oldest_delta, facts.newest_delta) == (min(deltas), max(deltas))
    assert facts.has_null_keys == any(record.key is None for record in found)


@given(record_lists(), st.data())
def test_survey_and_reader_refuse_the_same_sections(
    found: list[Record], data: st.DataObject
) -> None:
    """A leader that lets a batch pass which no reader takes has poisoned the partition."""
    section = bytes(data.draw(mutated(bytes(batch.build_batch_of(found)[batch.HEADER_BYTES :]))))
    whole = batch.build_batch([(b"", b"")], timestamp_ms=0)[: batch.HEADER_BYTES] + section
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">i", whole, 57, len(found))
    try:
        read = list(batch.records(whole))
    except CorruptRecords:
        read = []
    try:
        facts = survey(section, 0, len(found))
    except CorruptRecords:
        assert not read
    else:
        assert [record.offset for record in read] == list(range(len(read))) or (
            not facts.is_sequential
        )
        assert len(read) == len(found)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_varint_comes_back(value: int) -> None:
    data = encode_varint(value)
    assert decode_varint(data, 0, VARLONG_BYTES_MAX) == (value, len(data))


@given(st.binary(max_size=3000), codecs)
def test_compression_loses_nothing(text: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, text), bytes_max=len(text)) == text


@settings(max_examples=300)
@given(st.data(), st.binary(max_size=300), codecs, st.sampled_from([0, 1, 2]))
def test_a_mutated_stream_is_read_or_corrupt(
    data: st.DataObject, text: bytes, codec: Codec, magic: int
) -> None:
    stream = bytes(data.draw(mutated(compress(codec, text))))
    try:
        assert len(decompress(codec, stream, bytes_max=4096, magic=magic)) <= 4096
    except CorruptRecords:
        pass


@settings(max_examples=300)
@given(st.data(), st.sampled_from(SOUND), st.integers(0, 9), st.booleans())
def test_mutated_produce_bytes_raise_nothing_but_invalid_records(
    data: st.DataObject, name: str, version: int, is_resealed: bool
) -> None:
    changed = data.draw(mutated(of(name)))
    if is_resealed and len(changed) > batch.HEADER_BYTES:
        changed[:8] = bytes(8)
        batch.reseal(changed)
    before = bytes(changed)
    rules = ProduceRules(is_compacted=True, timestamp_before_max_ms=10**12)
    try:
        prepared = prepare(changed, produce_version=version, rules=rules, now_ms=T0)
    except InvalidRecords:
        pass
    else:
        if prepared is not None:
            assert len(list(batch.records(prepared.batch))) == prepared.record_count
    assert changed == before


@settings(max_examples=300)
@given(st.data(), st.sampled_from(SOUND))
def test_a_mutated_segment_only_ends_early(data: st.DataObject, name: str) -> None:
    changed = bytes(data.draw(mutated(of(name) * 2)))
    steps = walk(changed)
    entries = list(steps)
    assert b"".join(entry.data for entry in entries) == changed[: steps.valid_bytes]
    assert steps.stop is not None
    offsets = [entry.last_offset for entry in entries]
    assert offsets == sorted(set(offsets))


@settings(max_examples=300)
@given(st.data(), st.sampled_from(SOUND))
def test_mutated_entries_read_as_records_or_are_corrupt(data: st.DataObject, name: str) -> None:
    changed = bytes(data.draw(mutated(of(name))))
    try:
        for position, _ in batch.iterate(changed):
            for _ in batch.records(changed, position, bytes_max=1 << 20):
                pass
    except CorruptRecords:
        pass


@given(st.binary(max_size=400))
def test_random_bytes_are_no_records(noise: bytes) -> None:
    assert list(walk(noise)) == []
    try:
        for position, _ in batch.iterate(noise):
            list(batch.records(noise, position, bytes_max=1 << 16))
    except CorruptRecords:
        pass
