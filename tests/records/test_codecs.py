"""Codecs: what Java, Go and old C clients write is read, and bombs do not go off."""

from __future__ import annotations

import gzip
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
import snappy
import xxhash
import zstandard

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.compression import lz4_frames, snappy_streams, zstd_frames
from barnabas.protocol.records.compression.codecs import (
    Codec,
    compress,
    decompress,
    produced_bytes_max,
)
from barnabas.protocol.records.compression.output_room import KEPT_BYTES_MAX, more_room, room
from barnabas.protocol.records.corrupt_records import CorruptRecords, ExpandsTooFar

TEXT = b"".join(b"%d bottles of milk, " % number for number in range(20_000))
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
PLENTY = 1 << 24


def damaged(data: bytes) -> bytes:
    """In its first block, which no codec here can make anything of then."""
    return data[:30] + b"\xff" * 40 + data[70:]


def read(codec: int, data: bytes, *, bytes_max: int = PLENTY, magic: int = 2) -> bytes:
    return decompress(codec, data, bytes_max=bytes_max, magic=magic)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("text", [b"", b"x", TEXT, bytes(1 << 20)], ids=len)
def test_what_is_compressed_comes_back(codec: Codec, text: bytes) -> None:
    assert read(codec, compress(codec, text)) == text
    assert read(codec, compress(codec, bytearray(text))) == text
    assert read(codec, compress(codec, memoryview(text))) == text


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_gives_no_more_bytes(codec: Codec) -> None:
    assert len(compress(codec, TEXT, 9)) <= len(compress(codec, TEXT, 1))
    assert read(codec, compress(codec, TEXT, 9)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_exactly_the_bound_is_allowed_and_one_byte_more_is_not(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert read(codec, data, bytes_max=len(TEXT)) == TEXT
    with pytest.raises(ExpandsTooFar, match=f"more than {len(TEXT) - 1} bytes"):
        read(codec, data, bytes_max=len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("bytes_max", [PLENTY, 100_000])
def test_damage_before_the_bound_is_damage(codec: Codec, bytes_max: int) -> None:
    with pytest.raises(CorruptRecords) as caught:
        read(codec, damaged(compress(codec, TEXT)), bytes_max=bytes_max)
    assert type(caught.value) is CorruptRecords
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("kept", [0, 1, 5, 9, 20, 1000, -1])
def test_a_cut_stream_is_corrupt(codec: Codec, kept: int) -> None:
    data = compress(codec, TEXT)[:kept]
    with pytest.raises(CorruptRecords):
        read(codec, data)


def test_a_produced_batch_may_expand_to_16_mib_or_32_times_its_largest_size() -> None:
    assert produced_bytes_max(1000) == 16 << 20
    assert produced_bytes_max(1 << 20) == 32 << 20


def test_an_undefined_codec_is_corrupt() -> None:
    with pytest.raises(CorruptRecords):
        read(5, b"")


def test_zstd_is_corrupt_in_magic_1() -> None:
    with pytest.raises(CorruptRecords):
        read(Codec.ZSTD, compress(Codec.ZSTD, TEXT), magic=1)


def test_a_gzip_bomb_stops_at_the_bound() -> None:
    with pytest.raises(ExpandsTooFar, match="more than 1000 bytes"):
        read(Codec.GZIP, zlib.compress(bytes(1 << 22), 9, 31), bytes_max=1000)


def test_gzip_may_come_in_several_members() -> None:
    assert read(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_gzip_members_count_together_against_the_bound() -> None:
    with pytest.raises(ExpandsTooFar):
        read(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), bytes_max=6)


def test_gzip_is_one_member_without_a_time() -> None:
    assert compress(Codec.GZIP, b"x")[:8] == bytes.fromhex("1f8b080000000000")


def test_snappy_writes_xerial_blocks_of_32_kib() -> None:
    data = compress(Codec.SNAPPY, TEXT)
    assert data.startswith(bytes.fromhex("82534e4150505900 00000001 00000001"))
    size = int.from_bytes(data[16:20], "big")
    assert len(snappy.decompress(data[20 : 20 + size])) == 32 << 10


def test_snappy_of_nothing_is_the_header_alone() -> None:
    assert compress(Codec.SNAPPY, b"") == snappy_streams.HEADER
    assert read(Codec.SNAPPY, snappy_streams.HEADER) == b""


def test_snappy_is_read_without_xerial_framing() -> None:
    """kafka-python #127."""
    assert read(Codec.SNAPPY, snappy.compress(TEXT)) == TEXT


def test_snappy_is_read_with_little_endian_versions() -> None:
    """Seen from redpanda."""
    data = compress(Codec.SNAPPY, TEXT)
    assert read(Codec.SNAPPY, data[:8] + b"\1\0\0\0\1\0\0\0" + data[16:]) == TEXT


def test_snappy_streams_may_be_joined() -> None:
    assert read(Codec.SNAPPY, compress(Codec.SNAPPY, TEXT) * 2) == TEXT * 2


@pytest.mark.parametrize(
    "block",
    [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x02" + bytes(10), b"\xff\xff\xff\xff\xff\xff\x01"],
    ids=bytes.hex,
)
def test_a_snappy_block_that_claims_the_impossible_allocates_nothing(block: bytes) -> None:
    with pytest.raises(CorruptRecords):
        read(Codec.SNAPPY, block, bytes_max=1 << 30)
    framed = snappy_streams.HEADER + len(block).to_bytes(4, "big") + block
    with pytest.raises(CorruptRecords):
        read(Codec.SNAPPY, framed, bytes_max=1 << 30)


@pytest.mark.parametrize("size", [-1, 1 << 30])
def test_a_snappy_block_size_must_fit_what_is_there(size: int) -> None:
    data = snappy_streams.HEADER + size.to_bytes(4, "big", signed=True) + b"\0"
    with pytest.raises(CorruptRecords):
        read(Codec.SNAPPY, data)


def test_lz4_frames_are_as_java_writes_them() -> None:
    """Independent blocks of at most 64 KiB, no sizes, no checksums, and an end mark."""
    data = compress(Codec.LZ4, TEXT)
    assert data[:7] == bytes.fromhex("04224d18604082")
    assert data[-4:] == bytes(4)
    assert lz4.frame.decompress(data) == TEXT


def test_lz4_of_magic_0_has_the_legacy_header_checksum() -> None:
    """KAFKA-3160: 1a where 82 is right."""
    data = compress(Codec.LZ4, TEXT, magic=0)
    assert data[6] == 0x1A
    assert read(Codec.LZ4, data, magic=0) == TEXT
    for magic in (1, 2):
        with pytest.raises(CorruptRecords, match="header checksum"):
            read(Codec.LZ4, data, magic=magic)


def test_magic_0_reads_the_right_lz4_header_checksum_too() -> None:
    assert read(Codec.LZ4, compress(Codec.LZ4, TEXT), magic=0) == TEXT


@pytest.mark.parametrize(
    "descriptor", ["6040", "6840ffffffffffffff7f", "7070", "6c40000102030405060f"]
)
def test_the_header_checksum_is_the_second_byte_of_xxhash32(descriptor: str) -> None:
    data = bytes.fromhex(descriptor)
    assert lz4_frames.header_checksum(data) == xxhash.xxh32_intdigest(data) >> 8 & 0xFF


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("has_block_checksum", [False, True])
@pytest.mark.parametrize("has_content_checksum", [False, True])
@pytest.mark.parametrize("has_size", [False, True])
def test_lz4_is_read_with_every_option_of_independent_frames(
    block_size: int, has_block_checksum: bool, has_content_checksum: bool, has_size: bool
) -> None:
    data = lz4.frame.compress(
        TEXT,
        block_size=block_size,
        block_linked=False,
        block_checksum=has_block_checksum,
        content_checksum=has_content_checksum,
        store_size=has_size,
    )
    assert read(Codec.LZ4, data) == TEXT


def test_lz4_stored_blocks_are_read() -> None:
    noise = zlib.compress(TEXT, 9)
    assert read(Codec.LZ4, compress(Codec.LZ4, noise)) == noise
    assert read(Codec.LZ4, lz4.frame.compress(noise, block_linked=False)) == noise


def test_lz4_linked_blocks_are_refused_as_java_does() -> None:
    with pytest.raises(CorruptRecords, match="flags"):
        read(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True))


def test_lz4_verifies_a_block_checksum() -> None:
    data = bytearray(lz4.frame.compress(TEXT, block_linked=False, block_checksum=True))
    data[-5] ^= 1
    with pytest.raises(CorruptRecords):
        read(Codec.LZ4, bytes(data))


def test_lz4_skips_a_wrong_content_checksum_and_what_follows_the_end_mark() -> None:
    data = bytearray(lz4.frame.compress(TEXT, block_linked=False, content_checksum=True))
    data[-1] ^= 1
    assert read(Codec.LZ4, bytes(data) + b"whatever") == TEXT


@pytest.mark.parametrize("at", [4, 5])
@pytest.mark.parametrize("bit", range(8))
def test_lz4_refuses_every_descriptor_bit_that_is_not_what_was_hashed(at: int, bit: int) -> None:
    data = bytearray(compress(Codec.LZ4, TEXT))
    data[at] ^= 1 << bit
    with pytest.raises(CorruptRecords):
        read(Codec.LZ4, bytes(data))


def test_an_lz4_block_larger_than_its_descriptor_allows_is_refused() -> None:
    block = bytes((1 << 16) + 1)
    data = lz4_frames.HEADER + (len(block) | 1 << 31).to_bytes(4, "little") + block + bytes(4)
    with pytest.raises(CorruptRecords, match="a block of"):
        read(Codec.LZ4, data)


def test_zstd_frames_do_not_tell_their_content_size() -> None:
    frame = compress(Codec.ZSTD, TEXT)
    assert zstandard.get_frame_parameters(frame).content_size == zstandard.CONTENTSIZE_UNKNOWN


@pytest.mark.parametrize("has_size", [False, True])
@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("text", [b"", b"x" * 300, TEXT, TEXT[:70_000], bytes(1 << 20)], ids=len)
def test_zstd_is_read_with_and_without_size_and_checksum(
    has_size: bool, has_checksum: bool, text: bytes
) -> None:
    writer = zstandard.ZstdCompressor(
        level=1, write_content_size=has_size, write_checksum=has_checksum
    )
    assert read(Codec.ZSTD, writer.compress(text)) == text


def test_zstd_streams_are_read_in_several_frames_with_skippable_ones() -> None:
    frame = zstandard.ZstdCompressor().compress(TEXT)
    skippable = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    assert read(Codec.ZSTD, frame + skippable + frame) == TEXT * 2


def test_a_zstd_bomb_stops_at_the_bound() -> None:
    """Eight KiB that would become 256 MiB."""
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    with pytest.raises(ExpandsTooFar, match="more than 1000000 bytes"):
        read(Codec.ZSTD, bomb, bytes_max=1_000_000)


def test_a_batch_of_many_blocks_is_copied_into_more_room_only_now_and_then() -> None:
    """For each block it took 5 s of CPU to expand 31 MiB of LZ4."""
    given, rooms = room(0), set()
    for size in range(64 << 10, 32 << 20, 64 << 10):
        given = more_room(given, 0, size)
        assert len(given) >= size
        rooms.add(len(given))
    assert len(rooms) < 12
    assert len(given) <= 64 << 20


def test_a_zstd_frame_that_claims_much_gets_no_more_room_than_its_blocks_need() -> None:
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(TEXT))
    assert frame[4] >> 6 == 2, "four bytes of content size"
    frame[5:9] = b"\xff\xff\xff\x07"
    with pytest.raises(CorruptRecords):
        read(Codec.ZSTD, bytes(frame), bytes_max=1 << 30)


@pytest.mark.parametrize(
    "frame", ["", "28b52ffd", "28b52ffd0058", "28b52ffd0058070000", "00112233"]
)
def test_a_broken_zstd_frame_is_corrupt(frame: str) -> None:
    with pytest.raises(CorruptRecords):
        read(Codec.ZSTD, bytes.fromhex(frame))


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_what_an_earlier_batch_left_in_the_room_is_in_no_later_one(codec: Codec) -> None:
    larger_than_kept = bytes(range(256)) * (KEPT_BYTES_MAX // 256 + 1000)
    first = read(codec, compress(codec, TEXT))
    for text in (b"short", larger_than_kept, b"", TEXT[::-1], b"shorter still"):
        assert read(codec, compress(codec, text)) == text
    assert first == TEXT, "it was handed out, and another one's bytes are in it"


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_threads_that_decompress_at_once_have_rooms_of_their_own(codec: Codec) -> None:
    texts = [bytes([number]) * 300_000 for number in range(4)]

    def read_often(text: bytes) -> bool:
        packed = compress(codec, text)
        return all(read(codec, packed) == text for _ in range(50))

    with ThreadPoolExecutor(len(texts)) as threads:
        assert all(threads.map(read_often, texts))


def test_no_more_than_the_bound_is_kept_for_the_next_batch() -> None:
    assert len(room(KEPT_BYTES_MAX + 1)) == KEPT_BYTES_MAX + 1
    assert len(room(1)) <= KEPT_BYTES_MAX


def test_zstd_level_is_taken() -> None:
    assert len(zstd_frames.compress(TEXT, 19)) < len(zstd_frames.compress(TEXT, 1))


def test_what_cramjam_frames_by_itself_would_not_do() -> None:
    """Why snappy and LZ4 are framed here: Java rejects both of these."""
    with pytest.raises(CorruptRecords):
        read(Codec.SNAPPY, bytes(cramjam.snappy.compress(TEXT)))
    with pytest.raises(CorruptRecords):
        read(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)))


EMPTY_MEMBER = zlib.compress(b"", 9, 31)


@pytest.mark.parametrize(
    "tail",
    [b"x", bytes(30), b"\x1f\x8b\x07" + bytes(40), EMPTY_MEMBER[:12]],
    ids=["a byte", "zeros", "no deflate", "less than a member"],
)
def test_what_follows_the_last_gzip_member_is_ignored(tail: bytes) -> None:
    """java.util.zip does, and so a batch that ends like this is appended by Kafka 3.9.1."""
    assert read(Codec.GZIP, gzip.compress(b"one") + tail) == b"one"


@pytest.mark.parametrize(
    "tail",
    [EMPTY_MEMBER[:19], EMPTY_MEMBER[:10] + b"\xff" * 40, b"\x1f\x8b\x08\xe0" + bytes(40)],
    ids=["cut", "no data", "flags"],
)
def test_a_gzip_member_that_is_begun_must_be_right(tail: bytes) -> None:
    with pytest.raises(CorruptRecords):
        read(Codec.GZIP, gzip.compress(b"one") + tail)


def test_an_lz4_end_mark_may_be_marked_as_stored() -> None:
    """As Kafka's reader has it."""
    assert read(Codec.LZ4, compress(Codec.LZ4, b"x")[:-4] + b"\0\0\0\x80") == b"x"


def test_snappy_ends_where_a_block_size_is_cut() -> None:
    """As in snappy-java."""
    assert read(Codec.SNAPPY, compress(Codec.SNAPPY, b"x") + bytes(3)) == b"x"
