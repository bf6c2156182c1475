"""The work that hostile batches make is counted, whatever their size and header say."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.compression import codecs, lz4_frames, snappy_streams, zstd_frames
from barnabas.protocol.records.compression.codecs import Codec, compress, decompress
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.work_limit import TooMuchWork, Work
from tests.harness.hostile_batches import HOSTILE, many_headers

NOW_MS = 1_780_000_000_000
STEPS = 20_000
PLENTY = 1 << 26


class CountingMember:
    """zlib's decompressor, counting the bytes that it is given: it copies what it leaves."""

    given = 0

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def decompress(self, data: Any, *rest: Any) -> bytes:
        CountingMember.given += len(data)
        found: bytes = self._inner.decompress(data, *rest)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_the_bytes_behind_a_gzip_member_are_not_copied_for_each(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    make = zlib.decompressobj
    monkeypatch.setattr(CountingMember, "given", 0)
    monkeypatch.setattr(zlib, "decompressobj", lambda bits: CountingMember(make(bits)))
    member = zlib.compress(b"", 9, 31)
    data = member * count + zlib.compress(bytes(100_000), 9, 31)
    assert decompress(Codec.GZIP, data, bytes_max=PLENTY) == bytes(100_000)
    assert CountingMember.given <= len(data) + count * codecs.GZIP_SLICE_BYTES + 4 * 100_000


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_batch_takes_more_steps_than_the_loop_has(name: str) -> None:
    data = HOSTILE[name]()
    work = Work(STEPS)
    with pytest.raises(TooMuchWork):
        prepare(data, produce_version=9, rules=ProduceRules(), now_ms=NOW_MS, work=work)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_batch_is_valid_for_whoever_has_the_time(name: str) -> None:
    prepared = prepare(HOSTILE[name](), produce_version=9, rules=ProduceRules(), now_ms=NOW_MS)
    assert prepared is not None
    assert prepared.record_count == 1


@pytest.mark.parametrize("name", [name for name in HOSTILE if "zstd" not in name])
def test_a_hostile_batch_takes_more_steps_to_convert_than_the_loop_has(name: str) -> None:
    data = HOSTILE[name]()
    with pytest.raises(TooMuchWork):
        down_convert(data, 1, 0, work=Work(STEPS))
    assert down_convert(data, 1, 0)


@pytest.mark.parametrize("codec", Codec)
def test_an_honest_batch_stays_far_below(codec: Codec) -> None:
    pairs = [(b"key %d" % n, b"%d bottles of milk, " % n * 10) for n in range(1_000)]
    data = batch.build_batch(pairs, timestamp_ms=NOW_MS, codec=codec)
    work = Work(STEPS)
    prepare(data, produce_version=9, rules=ProduceRules(), now_ms=NOW_MS, work=work)
    assert STEPS - work.left < STEPS // 8


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_messages_inside_of_a_wrapper_are_counted(codec: Codec) -> None:
    records = [Record(n, NOW_MS, None, b"") for n in range(STEPS // 4)]
    data = encode_messages(records, 1, codec=codec)
    with pytest.raises(TooMuchWork):
        prepare(data, produce_version=2, rules=ProduceRules(), now_ms=NOW_MS, work=Work(STEPS))


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", "snappy"])
def test_compressing_for_a_topic_is_counted(compression: str) -> None:
    data = batch.build_batch([(b"", bytes(16 << 20))], timestamp_ms=NOW_MS)
    rules = ProduceRules(compression=compression, message_bytes_max=32 << 20)
    with pytest.raises(TooMuchWork):
        prepare(data, produce_version=9, rules=rules, now_ms=NOW_MS, work=Work(STEPS))


def test_records_that_are_looked_at_one_by_one_are_counted() -> None:
    data = batch.build_batch([(None, b"")] * (STEPS // 4), timestamp_ms=NOW_MS)
    rules = ProduceRules(is_compacted=True)
    with pytest.raises(TooMuchWork):
        prepare(data, produce_version=9, rules=rules, now_ms=NOW_MS, work=Work(STEPS))


def test_a_batch_that_takes_too_much_is_not_changed() -> None:
    data = bytearray(many_headers())
    kept = bytes(data)
    rules = ProduceRules(timestamp_type="LogAppendTime")
    with pytest.raises(TooMuchWork):
        prepare(memoryview(data), produce_version=9, rules=rules, now_ms=NOW_MS, work=Work(STEPS))
    assert bytes(data) == kept


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Codec.GZIP, zlib.compress(bytes(1 << 24), 9, 31)),
        (Codec.ZSTD, zstd_frames.compress(bytes(1 << 24), 3)),
        (Codec.LZ4, lz4_frames.compress(bytes(1 << 24), None, is_legacy=False)),
        (Codec.SNAPPY, snappy_streams.compress(bytes(1 << 24))),
    ],
)
def test_a_bomb_stops_at_the_steps_before_its_bytes(codec: Codec, payload: bytes) -> None:
    with pytest.raises(TooMuchWork):
        decompress(codec, payload, bytes_max=PLENTY, work=Work(1_000))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_steps_that_just_suffice_give_all_the_bytes(codec: Codec) -> None:
    text = bytes(range(256)) * 4_000
    data = compress(codec, text)
    used = Work(STEPS)
    assert decompress(codec, data, bytes_max=PLENTY, work=used) == text
    assert decompress(codec, data, bytes_max=PLENTY, work=Work(STEPS - used.left)) == text
    with pytest.raises(TooMuchWork):
        decompress(codec, data, bytes_max=PLENTY, work=Work(STEPS - used.left - 1))


def test_a_batch_of_a_record_whose_headers_are_few_is_no_matter() -> None:
    section = many_headers(3)
    work = Work(STEPS)
    assert prepare(section, produce_version=9, rules=ProduceRules(), now_ms=NOW_MS, work=work)
    assert STEPS - work.left < 10


def test_what_gzip_made_before_it_was_too_much_is_counted() -> None:
    """Else a few kilobytes would cost the loop milliseconds, as often in a turn as they come."""
    work = Work(1000)
    with pytest.raises(TooMuchWork):
        decompress(Codec.GZIP, compress(Codec.GZIP, bytes(8 << 20)), bytes_max=1 << 30, work=work)
    assert work.left <= 0
