"""Burrow's rules: a table for each, and all of them against a fold written another way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group_health import (
    CommitSample,
    HealthRules,
    Verdict,
    evaluate,
    evaluate_group,
)

END = 1000
NOW = 100_000
OK, WARN, ERR = Verdict.OK, Verdict.WARN, Verdict.ERR
STOP, STALL, REWIND = Verdict.STOP, Verdict.STALL, Verdict.REWIND


def window(*steps: tuple[int, int], until_ms: int = NOW) -> list[CommitSample]:
    """Commits of (offset, lag), a second apart, the last one at ``until_ms``."""
    first = until_ms - (len(steps) - 1) * 1000
    return [CommitSample(offset, first + n * 1000, lag) for n, (offset, lag) in enumerate(steps)]


def test_a_partition_without_any_commit_is_not_found() -> None:
    assert evaluate([], end=END, now_ms=NOW) is Verdict.NOTFOUND


def test_rule_0_says_ok_while_the_window_is_less_complete_than_asked() -> None:
    stalled = window(*[(10, 5)] * 4)
    assert evaluate(stalled, end=END, now_ms=NOW) is STALL
    assert evaluate(stalled, end=END, now_ms=NOW, rules=HealthRules(completeness_min=0.5)) is OK
    assert evaluate(stalled, end=END, now_ms=NOW, rules=HealthRules(completeness_min=0.4)) is STALL


@pytest.mark.parametrize(("end", "verdict"), [(10, OK), (9, OK), (11, STALL)])
def test_rule_1_says_ok_when_nothing_is_left_to_read_now(end: int, verdict: Verdict) -> None:
    assert evaluate(window(*[(10, 5)] * 10), end=end, now_ms=NOW) is verdict


def test_rule_1_forgives_the_lag_that_is_allowed() -> None:
    stalled = window(*[(10, 50)] * 10)
    assert evaluate(stalled, end=15, now_ms=NOW, rules=HealthRules(allowed_lag=5)) is OK
    assert evaluate(stalled, end=16, now_ms=NOW, rules=HealthRules(allowed_lag=5)) is STALL


def test_rule_1_does_not_count_what_was_deleted_unread() -> None:
    assert evaluate(window(*[(10, 5)] * 10), end=END, log_start=END, now_ms=NOW) is OK


def test_rule_2_says_stop_when_silence_lasts_longer_than_the_window_took() -> None:
    commits = window(*[(n, 5) for n in range(10)], until_ms=NOW)
    assert evaluate(commits, end=END, now_ms=NOW + 9000) is not STOP
    assert evaluate(commits, end=END, now_ms=NOW + 9001) is STOP


def test_rule_2_says_stop_although_there_was_no_lag_once() -> None:
    commits = window(*[(n, 0) for n in range(10)])
    assert evaluate(commits, end=END, now_ms=NOW + 10_000) is STOP


def test_rule_2_waits_while_the_log_ended_at_the_last_commit_a_moment_ago() -> None:
    commits = window(*[(n, 0) for n in range(10)])
    late = NOW + 10_000
    assert evaluate(commits, end=END, earlier_ends=[9, 500], now_ms=late) is OK
    assert evaluate(commits, end=END, earlier_ends=[10, 500], now_ms=late) is STOP


def test_rule_3_says_rewind_when_an_offset_that_went_back_was_never_reached_again() -> None:
    back = window((50, 5), (60, 5), (20, 5), (30, 5), (59, 4))
    assert evaluate(back, end=END, now_ms=NOW) is REWIND


def test_rule_3_forgives_a_rewind_that_was_caught_up_with() -> None:
    again = window((50, 5), (60, 5), (20, 5), (30, 5), (60, 4))
    assert evaluate(again, end=END, now_ms=NOW) is OK


def test_rule_3_says_rewind_although_there_was_no_lag_before_it() -> None:
    assert evaluate(window((50, 0), (20, 30)), end=END, now_ms=NOW) is REWIND


def test_rule_4_says_ok_when_some_commit_had_no_lag() -> None:
    commits = [(n, n * 10) for n in range(10)]
    assert evaluate(window(*commits), end=END, now_ms=NOW) is OK
    assert evaluate(window(*commits[1:]), end=END, now_ms=NOW) is WARN


def test_rule_5_says_stall_when_every_commit_is_the_same_though_lag_is_falling() -> None:
    assert evaluate(window((7, 9), (7, 8), (7, 7)), end=END, now_ms=NOW) is STALL
    assert evaluate(window((6, 9), (7, 8), (7, 7)), end=END, now_ms=NOW) is OK


def test_rule_6_says_warn_when_lag_never_fell() -> None:
    assert evaluate(window((1, 5), (2, 5), (3, 6)), end=END, now_ms=NOW) is WARN


def test_rule_7_says_ok_when_lag_fell_once() -> None:
    assert evaluate(window((1, 5), (2, 4), (3, 60)), end=END, now_ms=NOW) is OK


def test_only_the_latest_commits_of_a_longer_history_count() -> None:
    history = window((90, 0), *[(n, 5) for n in range(1, 11)])
    assert evaluate(history, end=END, now_ms=NOW) is WARN
    assert evaluate(history, end=END, now_ms=NOW, rules=HealthRules(commits=11)) is REWIND


def test_commits_may_be_plain_tuples() -> None:
    assert evaluate([(1, NOW - 1, 5), (2, NOW, 6)], end=END, now_ms=NOW) is WARN


@pytest.mark.parametrize(
    ("partitions", "verdict"),
    [
        ([], Verdict.NOTFOUND),
        ([Verdict.NOTFOUND, OK], OK),
        ([OK, WARN, OK], WARN),
        ([OK, STOP, WARN], ERR),
        ([STALL], ERR),
        ([REWIND, OK], ERR),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(
    partitions: list[Verdict], verdict: Verdict
) -> None:
    assert evaluate_group(partitions) is verdict


def test_the_numbers_are_those_that_burrow_serves() -> None:
    names = ["NOTFOUND", "OK", "WARN", "ERR", "STOP", "STALL", "REWIND"]
    assert [verdict.name for verdict in sorted(Verdict)] == names
    assert [int(verdict) for verdict in sorted(Verdict)] == list(range(7))


def folded(
    commits: list[tuple[int, int, int]], end: int, start: int, ends: list[int], now: int
) -> Verdict:
    """The same rules, from one pass over the commits that keeps a few facts."""
    owed: list[int] = []  # offsets that were left behind and not reached again
    before: tuple[int, int, int] | None = None
    is_same = is_growing = always_behind = True
    for offset, stamp, lag in commits:
        owed = [due for due in owed if due > offset]
        if before is not None:
            if offset < before[0]:
                owed.append(before[0])
            is_same &= offset == before[0]
            is_growing &= lag >= before[1 + 1]
        always_behind &= lag > 0
        before = offset, stamp, lag
    if before is None:
        return Verdict.NOTFOUND
    if end <= before[0] or end <= start:
        return OK
    if now - before[1] > before[1] - commits[0][1] and min([*ends, end]) > before[0]:
        return STOP
    if owed:
        return REWIND
    if not always_behind:
        return OK
    return STALL if is_same else WARN if is_growing else OK


SMALL = st.integers(0, 6)


@given(
    commits=st.lists(st.tuples(SMALL, st.integers(0, 3), st.integers(0, 3)), max_size=10),
    end=st.integers(0, 9),
    start=st.integers(0, 9),
    ends=st.lists(SMALL, max_size=3),
    later=st.integers(0, 12),
)
def test_the_rules_agree_with_a_fold_over_the_commits(
    commits: list[tuple[int, int, int]], end: int, start: int, ends: list[int], later: int
) -> None:
    clock = 0
    timed = []
    for offset, pause, lag in commits:
        clock += pause
        timed.append((offset, clock, lag))
    verdict = evaluate(timed, end=end, earlier_ends=ends, log_start=start, now_ms=clock + later)
    assert verdict is folded(timed, end, start, ends, clock + later)
