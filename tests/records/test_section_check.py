"""The walk that reads no record agrees with the one that reads them all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.section_check import Survey, _walk, survey
from tests.records.vectors import T0

LONG = b"x" * 9000


def surveyed(found: list[Record]) -> Survey:
    data = batch.build_batch_of(found)
    return survey(data, batch.HEADER_BYTES, len(found))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8200])
def test_offset_deltas_of_every_width_are_sequential(count: int) -> None:
    assert surveyed([Record(index, T0, b"k", b"v") for index in range(count)]).is_sequential


@pytest.mark.parametrize("offsets", [(0, 2), (0, 1, 3), (0, 64), (0, 9000), (0, 0), (0, 1, 0)])
def test_any_other_offset_is_noticed(offsets: tuple[int, ...]) -> None:
    assert not surveyed([Record(offset, T0, b"k", b"v") for offset in offsets]).is_sequential


@pytest.mark.parametrize(
    "deltas",
    [(0, 1, -1), (0, 63, -64), (0, 64, -65), (0, 8191, -8192), (0, 8192, -8193), (0, -(10**12))],
)
def test_timestamp_deltas_of_every_width_are_compared(deltas: tuple[int, ...]) -> None:
    facts = surveyed([Record(index, T0 + delta, b"k", b"v") for index, delta in enumerate(deltas)])
    assert (facts.oldest_delta, facts.newest_delta) == (min(deltas), max(deltas))


@pytest.mark.parametrize("key", [b"", b"k" * 63, b"k" * 64, LONG])
@pytest.mark.parametrize("value", [None, b"", b"v" * 63, b"v" * 64, LONG])
@pytest.mark.parametrize("headers", [(), (("h", b"x"), ("", None)), (("h" * 100, LONG),) * 3])
def test_fields_of_every_width_are_stepped_over(
    key: bytes, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    found = [Record(index, T0, key, value, headers) for index in range(3)]
    assert surveyed(found) == Survey(True, 0, 0, False)


def test_a_null_key_is_noticed() -> None:
    assert surveyed([Record(0, T0, b"", b""), Record(1, T0, None, b"")]).has_null_keys


def test_bytes_behind_the_records_are_refused() -> None:
    data = batch.build_batch([(b"k", b"v")], timestamp_ms=T0) + b"\0"
    with pytest.raises(CorruptRecords):
        survey(data, batch.HEADER_BYTES, 1)


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_cut_record_is_refused(cut: int) -> None:
    data = batch.build_batch([(b"k", b"v")], timestamp_ms=T0)[:-cut]
    with pytest.raises(CorruptRecords):
        survey(data, batch.HEADER_BYTES, 1)


def test_a_huge_count_ends_with_the_bytes() -> None:
    data = batch.build_batch([(b"k", b"v")], timestamp_ms=T0)
    with pytest.raises(CorruptRecords):
        survey(data, batch.HEADER_BYTES, (1 << 31) - 1)


def surveyed_one_by_one(data: bytes, count: int) -> Survey | None:
    """The facts as the walk alone finds them; None for what it refuses."""
    try:
        facts, stop = _walk(data, batch.HEADER_BYTES, 0, count)
    except CorruptRecords:
        return None
    return facts if stop == len(data) else None


@settings(deadline=None, max_examples=50)
@given(
    size=st.integers(0, 200),
    key=st.sampled_from([None, b"", b"key"]),
    times=st.lists(st.integers(-3, 200), min_size=1, max_size=6),
    count=st.sampled_from([40, 64, 100, 8230]),
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=2),
)
def test_runs_of_one_shape_are_judged_as_record_after_record_would_be(
    size: int,
    key: bytes | None,
    times: list[int],
    count: int,
    damage: list[tuple[int, int]],
) -> None:
    stamps = [T0 + times[index * len(times) // count] for index in range(count)]
    found = [Record(index, stamps[index], key, b"v" * size) for index in range(count)]
    data = bytearray(batch.build_batch_of(found))
    for place, byte in damage:
        start = batch.HEADER_BYTES
        data[start + place % (len(data) - start)] = byte
    expected = surveyed_one_by_one(bytes(data), count)
    for form in (bytes(data), data, memoryview(data)):
        if expected is None:
            with pytest.raises(CorruptRecords):
                survey(form, batch.HEADER_BYTES, count)
        else:
            assert survey(form, batch.HEADER_BYTES, count) == expected


def test_a_run_goes_on_where_numbers_become_wider() -> None:
    found = [
        Record(index, T0 + index, b"k", b"v" * (90 + (index > 20_000))) for index in range(30_000)
    ]
    assert surveyed(found) == Survey(True, 0, 29_999, False)


def test_records_that_change_their_length_all_the_time_are_walked() -> None:
    found = [Record(index, T0, None, b"v" * (index % 3)) for index in range(10_000)]
    assert surveyed(found) == Survey(True, 0, 0, True)
