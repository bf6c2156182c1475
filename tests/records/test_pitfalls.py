"""What other implementations got wrong about records, each under its number in
docs/spec/log.md §9.
"""

from __future__ import annotations

import gzip

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec, compress, decompress
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.produce_rules import ProduceRules
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.walk import walk
from tests.records.vectors import T0, VECTORS, of

RECORDS = [Record(number, T0, b"k%d" % number, b"v" * 50) for number in range(5)]
LZ4_MAGIC = b"\x04\x22\x4d\x18\x60\x40"


def test_p33_the_wrong_lz4_header_checksum_is_for_magic_0_alone() -> None:
    stored = batch.build_batch_of(RECORDS, codec=Codec.LZ4)
    marks = {}
    for magic, data in ((2, bytes(stored)), (1, down_convert(stored, 1, 0))):
        marks[magic] = data[data.index(LZ4_MAGIC) + 6]
    data = down_convert(stored, 0, 0)
    marks[0] = data[data.index(LZ4_MAGIC) + 6]
    assert marks == {0: 0x1A, 1: 0x82, 2: 0x82}


def test_p34_snappy_is_written_in_blocks_of_32_kib_and_read_raw_too() -> None:
    plain = b"x" * 70_000
    framed = compress(Codec.SNAPPY, plain)
    blocks, at = 0, 16
    while at < len(framed):
        blocks, at = blocks + 1, at + 4 + int.from_bytes(framed[at : at + 4], "big")
    assert (blocks, at) == (3, len(framed))
    assert decompress(Codec.SNAPPY, framed, bytes_max=1 << 20) == plain
    assert list(batch.records(of("v0-snappy-raw")))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_p35_inner_offsets_go_by_the_magic_and_not_by_the_request(version: int) -> None:
    odd = encode_messages([record._replace(offset=7) for record in RECORDS], 1, codec=1)
    prepared = prepare(odd, produce_version=version, rules=ProduceRules(), now_ms=T0)
    assert prepared
    assert [record.offset for record in batch.records(prepared.batch)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("magic", [0, 1])
def test_p36_a_wrapper_and_what_is_inside_have_one_magic(magic: int) -> None:
    stored = batch.build_batch_of(RECORDS, codec=Codec.GZIP)
    wrapper = down_convert(stored, magic, 0)
    inner = gzip.decompress(wrapper[wrapper.index(b"\x1f\x8b") :])
    assert batch.magic(wrapper) == magic
    assert {batch.magic(inner, position) for position, _ in batch.iterate(inner)} == {magic}


@pytest.mark.parametrize("name", ["v2-compacted-gaps", "v2-empty-retained"])
def test_p37_the_next_offset_is_that_of_the_batch_and_not_of_its_last_record(name: str) -> None:
    [entry] = walk(of(name))
    assert entry.last_offset + 1 == VECTORS[name]["next_offset"]
    offsets = [record.offset for _, record in walk(of(name)).records()]
    assert not offsets or offsets[-1] + 1 < VECTORS[name]["next_offset"]


def test_p38_records_below_the_fetch_offset_are_dropped_but_for_compressed_ones() -> None:
    def offsets(codec: int) -> list[int]:
        data = down_convert(batch.build_batch_of(RECORDS, codec=codec), 1, 3)
        return [
            record.offset
            for position, _ in batch.iterate(data)
            for record in batch.records(data, position)
        ]

    assert offsets(0) == [3, 4]
    assert offsets(Codec.GZIP) == [0, 1, 2, 3, 4]
