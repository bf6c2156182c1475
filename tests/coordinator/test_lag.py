"""Lag in records and in seconds, and what is odd about an offset (docs/spec/users.md §3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.lag import Lag, lag_of, seconds_behind, unread_from

OFFSETS = st.integers(0, 2**62)


@pytest.mark.parametrize(
    ("committed", "log_start", "end", "lag"),
    [
        (5, 0, 12, Lag(7, is_below_log_start=False, is_beyond_end=False)),
        (12, 0, 12, Lag(0, is_below_log_start=False, is_beyond_end=False)),
        (5, 5, 12, Lag(7, is_below_log_start=False, is_beyond_end=False)),
        (4, 5, 12, Lag(7, is_below_log_start=True, is_beyond_end=False)),
        (4, 12, 12, Lag(0, is_below_log_start=True, is_beyond_end=False)),
        (13, 0, 12, Lag(0, is_below_log_start=False, is_beyond_end=True)),
        (13, 0, 0, Lag(0, is_below_log_start=False, is_beyond_end=True)),
        (0, 0, 0, Lag(0, is_below_log_start=False, is_beyond_end=False)),
    ],
)
def test_lag_counts_what_can_still_be_read_and_tells_what_is_odd(
    committed: int, log_start: int, end: int, lag: Lag
) -> None:
    assert lag_of(committed, log_start, end) == lag


@given(committed=OFFSETS, log_start=OFFSETS, more=st.integers(0, 2**40))
def test_lag_is_never_negative_and_never_more_than_the_log_holds(  # C9.6
    committed: int, log_start: int, more: int
) -> None:
    end = log_start + more
    lag = lag_of(committed, log_start, end)
    assert lag.records == len(range(min(max(committed, log_start), end), end))
    assert not (lag.is_below_log_start and lag.is_beyond_end)
    assert unread_from(committed, log_start) >= log_start


@pytest.mark.parametrize(
    ("unread_ms", "seconds"), [(None, 0.0), (-1, None), (8_500, 1.5), (10_000, 0.0), (99_000, 0.0)]
)
def test_seconds_are_the_age_of_the_first_unread_record(
    unread_ms: int | None, seconds: float | None
) -> None:
    assert seconds_behind(unread_ms, 10_000) == seconds
