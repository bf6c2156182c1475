"""Which record's timestamp counts, whatever compaction and transactions left at a position."""

from __future__ import annotations

import pytest

from barnabas.client.admin.time_lag import UnreadRange, _first
from barnabas.protocol.records.batch import Record, assign, build_batch, build_batch_of, reseal
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.control import Marker, encode_marker


def batch(*records: tuple[int, int], codec: int = 0, append_time: int | None = None) -> bytes:
    """Records of (offset, timestamp)."""
    made = [Record(offset, stamp, None, b"v") for offset, stamp in records]
    return bytes(build_batch_of(made, codec=codec, append_time=append_time))


def marker(offset: int, stamp: int) -> bytes:
    made = build_batch(
        [encode_marker(Marker.COMMIT, 0)],
        timestamp_ms=stamp,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assign(made, offset, 0)
    return bytes(made)


@pytest.mark.parametrize("codec", list(Codec))
def test_it_is_the_record_at_the_position_and_not_its_batch(codec: Codec) -> None:
    data = batch((10, 500), (11, 400), (12, 900), codec=codec)
    assert [_first(data, UnreadRange(at, 13)) for at in (10, 11, 12)] == [500, 400, 900]


def test_it_is_the_next_one_that_compaction_left() -> None:
    assert _first(batch((10, 500), (14, 700)) + batch((20, 800)), UnreadRange(12, 21)) == 700
    assert _first(batch((20, 800)), UnreadRange(15, 21)) == 800


def test_a_marker_of_a_transaction_is_no_record_to_be_read() -> None:
    assert _first(marker(10, 500) + batch((11, 600)), UnreadRange(10, 12)) == 600
    assert _first(marker(10, 500), UnreadRange(10, 11)) == UnreadRange(11, 11)


def test_a_record_at_the_end_or_beyond_is_not_waited_for() -> None:
    start, end = _first(batch((10, 500)), UnreadRange(5, 10))  # type: ignore[misc]
    assert start >= end


def test_the_look_goes_on_behind_what_had_no_record() -> None:
    assert _first(marker(10, 500), UnreadRange(10, 30)) == UnreadRange(11, 30)


def test_a_batch_that_is_cut_short_is_asked_for_again() -> None:
    assert _first(batch((10, 500))[:-1], UnreadRange(10, 30)) == UnreadRange(10, 30)
    assert _first(b"", UnreadRange(10, 30)) == UnreadRange(10, 30)


def test_the_brokers_time_counts_where_the_broker_stamps() -> None:
    assert _first(batch((10, 500), append_time=777), UnreadRange(10, 11)) == 777


def test_a_record_without_a_timestamp_says_so() -> None:
    assert _first(batch((10, -1)), UnreadRange(10, 11)) == -1


def test_a_header_is_believed_only_as_far_as_it_tells() -> None:
    data = batch((10, 500), (11, 400), (12, 900))
    assert _first(data, UnreadRange(11, 13), within_ms=500) == 500
    assert _first(data, UnreadRange(11, 13), within_ms=300) == 400
    assert _first(data, UnreadRange(5, 10), within_ms=500) == UnreadRange(10, 10)
    assert _first(batch((10, -1)), UnreadRange(10, 11), within_ms=500) == -1


def test_a_batch_that_cannot_be_read_is_not_guessed_at() -> None:
    data = bytearray(batch((10, 500), codec=Codec.ZSTD))
    data[-10:] = bytes(10)
    reseal(data)
    assert _first(bytes(data), UnreadRange(10, 11)) == UnreadRange(10, 11)
