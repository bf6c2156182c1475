"""Rates over windows and the bucket of mutations, docs/spec/security.md §4 (S59, S63)."""

from __future__ import annotations

import pytest

from barnabas.broker.quota.rate import Rate, Windows, rounded_ms
from barnabas.broker.quota.token_bucket import TokenBucket

WINDOWS = Windows(11, 1.0)


def test_s59_a_burst_into_an_empty_history_is_spread_over_ten_windows() -> None:
    rate = Rate(WINDOWS)
    rate.record(20_000, 100.0)
    assert rate.value(100.0) == 2000
    assert rate.throttle_ms(1000, 100.0) == 10_000


def test_s59_after_its_throttle_a_client_is_within_its_bound() -> None:
    rate = Rate(WINDOWS)
    rate.record(20_000, 100.0)
    # The sample of the burst leaves eleven windows after it was written.
    assert rate.throttle_ms(1000, 110.5) > 0
    assert rate.throttle_ms(1000, 111.0) == 0


def test_s59_the_running_window_counts_with_its_part() -> None:
    rate = Rate(WINDOWS)
    for second in range(4):
        rate.record(1000, 100.0 + second)
    assert rate.value(103.5) == pytest.approx(4000 / 10.5)


def test_a_rate_forgets_what_is_older_than_all_windows() -> None:
    rate = Rate(WINDOWS)
    rate.record(5000, 100.0)
    rate.record(100, 200.0)
    assert rate.value(200.0) == 10


def test_a_window_that_began_before_all_windows_counts_as_long_as_it_was_written() -> None:
    rate = Rate(WINDOWS)
    rate.record(100, 100.0)
    rate.record(100, 100.9)
    assert rate.value(111.5) == pytest.approx(200 / 11.5)
    assert rate.value(112.0) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(WINDOWS)
    rate.record(20_000, 100.0)
    rate.record(-20_000, 100.0)
    assert rate.throttle_ms(1000, 100.0) == 0


def test_s66_a_rate_of_replication_is_not_spread_over_windows_to_come() -> None:
    rate = Rate(WINDOWS, is_filled=False)
    rate.record(20_000, 100.0)
    assert rate.value(100.0) == 20_000
    assert rate.value(104.0) == 5000


def test_a_half_millisecond_is_rounded_up_as_in_java() -> None:
    assert [rounded_ms(0.0005), rounded_ms(0.0015), rounded_ms(0.00049)] == [1, 2, 0]


def test_s63_thirty_partitions_pass_at_rate_two_and_the_next_waits_four_seconds() -> None:
    bucket = TokenBucket(2.0, 22.0, 100.0)
    assert bucket.throttle_ms(100.0) == 0
    bucket.take(30, 100.0)
    assert bucket.tokens == -8
    assert bucket.throttle_ms(100.0) == 4000
    assert bucket.throttle_ms(103.0) == 1000
    assert bucket.throttle_ms(104.0) == 0


def test_a_bucket_holds_no_more_than_its_burst_and_keeps_a_debt_at_another_rate() -> None:
    bucket = TokenBucket(2.0, 22.0, 100.0)
    bucket.take(1, 1000.0)
    assert bucket.tokens == 21
    bucket.use(1.0, 11.0, 1000.0)
    assert bucket.tokens == 11
    bucket.take(21, 1000.0)
    bucket.use(10.0, 110.0, 1000.0)
    assert bucket.throttle_ms(1000.0) == 1000


def test_time_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1.0, 11.0, 100.0)
    bucket.take(11, 100.0)
    bucket.take(0, 90.0)
    assert bucket.tokens == 0
