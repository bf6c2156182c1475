"""Recovery's walk: it stops where a crash left cut, nonsense or stale bytes."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.message_set import encode_message, encode_messages
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.walk import OFFSETS_MAX, WINDOW_BYTES, Stop, Walk, walk
from tests.records.vectors import T0, of


def stored(base: int, *values: bytes, epoch: int = 3, codec: int = 0) -> bytes:
    data = batch.build_batch([(b"k", value) for value in values], timestamp_ms=T0, codec=codec)
    batch.assign(data, base, epoch)
    return bytes(data)


FIRST, SECOND, THIRD = stored(100, b"a", b"b"), stored(102, b"c"), stored(103, b"d" * 500, codec=1)
LOG = FIRST + SECOND + THIRD
KEPT = len(FIRST) + len(SECOND)


def finished(data: bytes, *, base_offset: int = 100) -> Walk:
    steps = walk(data, base_offset=base_offset)
    for _ in steps:
        pass
    return steps


def test_every_entry_of_a_sound_segment_is_given() -> None:
    steps = walk(LOG, base_offset=100)
    entries = list(steps)
    assert [entry.data for entry in entries] == [FIRST, SECOND, THIRD]
    assert [(entry.base_offset, entry.last_offset) for entry in entries] == [
        (100, 101),
        (102, 102),
        (103, 103),
    ]
    assert {(entry.max_timestamp, entry.leader_epoch, entry.magic) for entry in entries} == {
        (T0, 3, 2)
    }
    assert (steps.stop, steps.valid_bytes) == (Stop.END, len(LOG))


@pytest.mark.parametrize("cut", range(1, len(THIRD)))
def test_a_cut_tail_is_partial_wherever_the_cut_is(cut: int) -> None:
    steps = finished(LOG[:-cut])
    assert (steps.stop, steps.valid_bytes) == (Stop.PARTIAL, KEPT)


@pytest.mark.parametrize(
    "nonsense",
    [bytes(512), b"\xff" * 512, random.Random(5).randbytes(4096), FIRST, SECOND],
    ids=["zeros", "ones", "random", "stale", "repeated"],
)
def test_nonsense_behind_good_entries_is_cut_off(nonsense: bytes) -> None:
    steps = finished(FIRST + SECOND + nonsense)
    assert steps.stop in (Stop.CORRUPT, Stop.PARTIAL)
    assert steps.valid_bytes == KEPT
    assert steps.reason


@pytest.mark.parametrize("position", [*range(8, 12), *range(16, len(SECOND))])
def test_a_flipped_bit_stops_the_walk(position: int) -> None:
    """But for the base offset and the leader epoch, which no checksum covers."""
    changed = bytearray(FIRST + SECOND)
    changed[len(FIRST) + position] ^= 0x80
    assert finished(bytes(changed)).valid_bytes == len(FIRST)


@pytest.mark.parametrize(
    ("form", "position", "value"), [(">i", 23, -2), (">h", 21, 5), (">h", 21, 7)]
)
def test_a_header_nobody_wrote_is_corrupt_under_a_right_checksum(
    form: str, position: int, value: int
) -> None:
    data = bytearray(SECOND)
    struct.pack_into(form, data, position, value)
    batch.reseal(data)
    steps = finished(FIRST + bytes(data))
    assert (steps.stop, steps.valid_bytes) == (Stop.CORRUPT, len(FIRST))


def test_an_offset_below_the_segments_base_is_corrupt() -> None:
    steps = finished(FIRST, base_offset=102)
    assert (steps.stop, steps.valid_bytes) == (Stop.CORRUPT, 0)


def test_an_offset_too_far_from_the_base_is_no_corruption() -> None:
    far = stored(100 + OFFSETS_MAX + 1, b"x")
    steps = finished(FIRST + far)
    assert (steps.stop, steps.valid_bytes) == (Stop.OVERFLOW, len(FIRST))
    assert finished(FIRST + stored(100 + OFFSETS_MAX, b"x")).stop == Stop.END


def test_garbage_with_a_far_offset_is_corruption_all_the_same() -> None:
    far = bytearray(stored(100 + OFFSETS_MAX + 1, b"x"))
    far[-1] ^= 1
    assert finished(FIRST + bytes(far)).stop == Stop.CORRUPT


@pytest.mark.parametrize("magic", [0, 1])
def test_older_magics_are_walked_too(magic: int) -> None:
    found = [Record(offset, T0 + offset, b"k", b"v") for offset in range(100, 103)]
    data = encode_messages(found, magic) + encode_messages(
        [record._replace(offset=record.offset + 3) for record in found], magic, codec=2
    )
    entries = list(walk(data, base_offset=100))
    assert [entry.last_offset for entry in entries] == [100, 101, 102, 105]
    assert {entry.leader_epoch for entry in entries} == {-1}


def test_zstd_in_an_old_magic_is_corrupt() -> None:
    assert finished(encode_message(Record(100, T0, None, b"x"), 1, 4)).stop == Stop.CORRUPT


def test_magics_may_alternate() -> None:
    data = of("mixed-magic-file")
    assert [entry.magic for entry in walk(data)] == [0, 1, 2]


def test_records_are_not_looked_into() -> None:
    assert finished(of("bad-v2-count"), base_offset=1000).stop == Stop.END


def test_a_walk_resumes_in_the_middle() -> None:
    steps = walk(LOG, base_offset=100, start=len(FIRST), previous_offset=101)
    assert [entry.position for entry in steps] == [len(FIRST), KEPT]
    stale = walk(LOG, base_offset=100, start=len(FIRST), previous_offset=102)
    assert (list(stale), stale.stop) == ([], Stop.CORRUPT)


class CountingFile:
    """A file that tells how much was read of it, and at most how much at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.largest = 0
        self.calls = 0

    def read(self, position: int, count: int) -> bytes:
        self.calls += 1
        self.largest = max(self.largest, count)
        return self.data[position : position + count]


def test_a_file_is_read_a_window_at_a_time() -> None:
    data = b"".join(stored(offset, bytes(3000)) for offset in range(1500))
    file = CountingFile(data)
    steps = walk(file.read, end=len(data))
    assert sum(1 for _ in steps) == 1500
    assert steps.stop == Stop.END
    assert file.largest <= WINDOW_BYTES
    assert file.calls <= len(data) // WINDOW_BYTES * 2 + 2


def test_an_entry_larger_than_the_window_is_verified() -> None:
    data = FIRST + stored(102, bytes(3 * WINDOW_BYTES)) + stored(103, b"x")
    file = CountingFile(data)
    steps = walk(file.read, end=len(data), base_offset=100)
    assert b"".join(entry.data for entry in steps) == data


@pytest.mark.parametrize("magic", [0, 1])
def test_a_large_old_message_is_verified(magic: int) -> None:
    data = encode_message(Record(0, T0, None, bytes(2 * WINDOW_BYTES)), magic)
    assert finished(data, base_offset=0).valid_bytes == len(data)


def test_garbage_that_claims_to_be_huge_is_not_read_at_once() -> None:
    claim = bytearray(SECOND[:61])
    struct.pack_into(">i", claim, 8, 8 * WINDOW_BYTES)
    data = FIRST + bytes(claim) + bytes(9 * WINDOW_BYTES)
    file = CountingFile(data)
    steps = walk(file.read, end=len(data), base_offset=100)
    assert [entry.data for entry in steps] == [FIRST]
    assert steps.stop == Stop.CORRUPT
    assert file.largest <= WINDOW_BYTES


def test_a_file_that_shrank_is_partial() -> None:
    steps = walk(CountingFile(LOG[:-5]).read, end=len(LOG), base_offset=100)
    assert len(list(steps)) == 2
    assert steps.stop == Stop.PARTIAL


def test_an_error_of_the_disk_is_no_statement_about_the_bytes() -> None:
    def broken(position: int, count: int) -> bytes:
        raise OSError(5, "input/output error")

    steps = walk(broken, end=1000)
    with pytest.raises(OSError, match="input/output"):
        list(steps)
    assert steps.stop is None


def test_an_empty_segment_ends_at_once() -> None:
    steps = finished(b"")
    assert (steps.stop, steps.valid_bytes) == (Stop.END, 0)
