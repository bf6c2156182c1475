"""The quick walk: headers of every format, from every kind of source, and why it ended."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from barnabas.protocol.records import batch
from barnabas.protocol.records.header_walk import HeaderWalk
from barnabas.protocol.records.message_set import encode_message, encode_messages
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.walk import Source, Stop, Walk, walk
from tests.records.test_kafka_data import segments
from tests.records.test_walk import FIRST, LOG, SECOND, THIRD
from tests.records.vectors import SOUND, T0, of

MESSAGES = (
    encode_message(Record(7, -1, b"k", b"old"), 0)
    + encode_messages([Record(8, T0, b"k", b"a"), Record(9, T0 + 5, b"k", b"b")], 1, codec=1)
    + LOG
)


def finished(source: Source, end: int | None = None) -> HeaderWalk:
    steps = HeaderWalk(source, end=end)
    for _ in steps:
        pass
    return steps


@pytest.mark.parametrize("name", SOUND)
def test_headers_are_those_the_verified_walk_finds(name: str) -> None:
    data = of(name)
    entries = [(e.position, e.base_offset, e.last_offset, e.max_timestamp) for e in walk(data)]
    headers = [
        (position, head.base_offset, head.last_offset, head.max_timestamp)
        for position, head in HeaderWalk(data)
    ]
    assert headers == entries


def test_every_segment_of_kafka_is_walked_alike_by_header_and_by_checksum() -> None:
    for parts in segments().values():
        for base_offset, data in parts.items():
            entries = [(e.position, e.last_offset) for e in walk(data, base_offset=base_offset)]
            steps = HeaderWalk(data)
            assert [(position, head.last_offset) for position, head in steps] == entries
            assert (steps.stop, steps.valid_bytes) == (Stop.END, len(data))


def test_bytes_a_view_a_map_and_a_function_are_walked_alike(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(MESSAGES)
    wanted = list(HeaderWalk(MESSAGES))
    entries = list(walk(MESSAGES))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for source in (bytearray(MESSAGES), memoryview(MESSAGES), mapped):
            assert list(HeaderWalk(source)) == wanted
            assert list(walk(source)) == entries
    for step in (1 << 20, 70):

        def read(position: int, count: int, step: int = step) -> bytes:
            return MESSAGES[position : position + min(count, step)]

        assert list(HeaderWalk(read, end=len(MESSAGES))) == wanted


def test_a_map_may_be_closed_while_what_was_walked_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(LOG)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        entries = list(walk(mapped, base_offset=100))
    assert [entry.data for entry in entries] == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("cut", range(1, len(SECOND) + len(THIRD)))
def test_a_cut_tail_is_partial_to_the_quick_walk_too(cut: int) -> None:
    steps = finished(LOG[:-cut])
    whole = walk(LOG[:-cut], base_offset=100)
    assert len(list(whole)) < 3
    assert (steps.stop, steps.valid_bytes) == (whole.stop, whole.valid_bytes)


def test_a_walk_from_a_position_begins_there() -> None:
    steps = HeaderWalk(LOG, start=len(FIRST))
    assert [head.base_offset for _, head in steps] == [102, 103]


@pytest.mark.parametrize("nonsense", [bytes(99), b"\xff" * 99])
def test_nonsense_ends_the_quick_walk_with_its_size_and_magic(nonsense: bytes) -> None:
    steps = finished(LOG + nonsense)
    assert (steps.stop, steps.valid_bytes) == (Stop.CORRUPT, len(LOG))
    assert "size" in steps.reason


def test_a_wrong_checksum_does_not_stop_the_quick_walk() -> None:
    damaged = bytearray(LOG)
    damaged[len(FIRST) - 1] ^= 1
    assert finished(damaged).stop is Stop.END
    assert finished(bytes(damaged)).stop is Stop.END


@pytest.mark.parametrize("length", range(len(LOG)))
def test_a_file_shorter_than_its_size_was_is_partial(length: int) -> None:
    steps = Walk(lambda position, count: LOG[:length][position : position + count], end=len(LOG))
    for _ in steps:
        pass
    assert steps.stop is Stop.PARTIAL
    assert steps.valid_bytes <= length


@pytest.mark.parametrize("length", range(len(FIRST) + len(SECOND) + 61))
def test_a_header_missing_from_a_shorter_file_is_partial(length: int) -> None:
    def read(position: int, count: int) -> bytes:
        return LOG[:length][position : position + count]

    steps = finished(read, end=len(LOG))
    assert steps.stop is Stop.PARTIAL


def test_a_large_entry_of_a_file_that_became_shorter_is_partial() -> None:
    data = bytes(batch.build_batch([(b"k", b"x" * (3 << 20))], timestamp_ms=T0))
    steps = Walk(
        lambda position, count: data[: 2 << 20][position : position + count], end=len(data)
    )
    assert not list(steps)
    assert steps.stop is Stop.PARTIAL


def test_records_come_with_their_entries_from_the_offset_asked_for() -> None:
    found = [(entry.base_offset, record.offset) for entry, record in walk(LOG).records(101)]
    assert found == [(100, 101), (102, 102), (103, 103)]


def test_an_entry_whose_records_cannot_be_read_ends_the_walk_where_it_begins() -> None:
    bad = bytearray(SECOND)
    bad[57:61] = (2).to_bytes(4, "big")
    batch.reseal(bad)
    steps = walk(FIRST + bytes(bad) + THIRD, base_offset=100)
    assert [record.offset for _, record in steps.records()] == [100, 101, 102]
    assert (steps.stop, steps.valid_bytes) == (Stop.CORRUPT, len(FIRST))
    assert steps.reason
