"""The judges of committed offsets find what they are there for, and nothing else."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.chaos.offset_history_checks import (
    NOTHING,
    History,
    Read,
    Write,
    contradictions,
    falls,
    inventions,
    never_seen_again,
)

TWO_COMMITS = [Write(1, 0, 1), Write(2, 2, 3)]


def history(*operations: Write | Read) -> History:
    return History(
        [one for one in operations if isinstance(one, Write)],
        [one for one in operations if isinstance(one, Read)],
    )


@pytest.mark.parametrize(
    "reads",
    [
        [Read(NOTHING, -2, -1), Read(1, 1.2, 1.4), Read(2, 4, 5)],
        [Read(NOTHING, 0.5, 2)],  # overlaps the commit: either is right
        [Read(1, 2.5, 2.6), Read(2, 2.7, 2.8)],
        [Read(2, 2.1, 2.9)],
    ],
)
def test_what_can_have_happened_is_not_reported(reads: list[Read]) -> None:
    seen = history(*TWO_COMMITS, *reads)
    assert falls(seen) == inventions(seen) == contradictions(seen) == []


@pytest.mark.parametrize(
    "reads",
    [
        [Read(1, 4, 5)],  # older than what was acknowledged
        [Read(NOTHING, 1.5, 1.6)],  # lost as a whole
        [Read(2, 2.1, 2.2), Read(1, 2.3, 2.4)],  # back, while the commit is under way
    ],
)
def test_an_offset_that_goes_back_is_found_by_both_judges(reads: list[Read]) -> None:
    seen = history(*TWO_COMMITS, *reads)
    assert falls(seen)
    assert contradictions(seen)


def test_a_fetch_of_what_nobody_committed_is_found() -> None:
    assert inventions(history(*TWO_COMMITS, Read(7, 1, 2)))
    assert contradictions(history(*TWO_COMMITS, Read(2, 0, 1)))  # before it was sent


def test_a_commit_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    unknown = Write(2, 2)
    assert contradictions(history(Write(1, 0, 1), unknown, Read(1, 9, 10))) == []
    late: list[Write | Read] = [Write(3, 4, 5), Read(3, 6, 7), Read(2, 8, 9)]
    assert contradictions(history(Write(1, 0, 1), unknown, *late)) == []
    assert contradictions(history(Write(1, 0, 1), unknown, *late, Read(3, 10, 11)))


def test_a_last_commit_that_is_not_read_at_the_end_is_found() -> None:
    assert never_seen_again(history(*TWO_COMMITS, Read(1, 4, 5)))
    assert never_seen_again(history(*TWO_COMMITS))
    assert never_seen_again(history(*TWO_COMMITS, Write(3, 4), Read(2, 5, 6))) == []


def explained_by_search(seen: History) -> bool:
    """Whether some order explains it, found by trying all (the slow and obvious way)."""
    unknown = [write for write in seen.writes if write.ended == math.inf]
    sure = [write for write in seen.writes if write.ended < math.inf]
    for count in range(len(unknown) + 1):
        for done in itertools.combinations(unknown, count):
            if _in_some_order([*sure, *done, *seen.reads], NOTHING):
                return True
    return False


def _in_some_order(left: list[Write | Read], value: int) -> bool:
    if not left:
        return True
    first_end = min(one.ended for one in left)
    for at, one in enumerate(left):
        if one.began > first_end:
            continue
        if isinstance(one, Read) and one.value != value:
            continue
        if _in_some_order(left[:at] + left[at + 1 :], one.value):
            return True
    return False


def made_up(rng: random.Random) -> History:
    """Some operations that overlap; what is fetched is mostly, not always, a likely value."""
    times = list(range(40))
    rng.shuffle(times)
    writes: list[Write] = []
    reads: list[Read] = []
    for value in range(rng.randint(1, 4)):
        began = times.pop()
        ended = began + rng.randint(1, 15) + 0.5
        writes.append(Write(value, began, math.inf if rng.random() < 0.3 else ended))
    for _ in range(rng.randint(1, 4)):
        began = times.pop()
        earlier = [write for write in writes if write.began < began] or [Write(NOTHING, 0)]
        likely = max(earlier, key=lambda write: write.began) if rng.random() < 0.6 else None
        value = (likely or rng.choice(earlier)).value
        reads.append(Read(value, began, began + rng.randint(1, 15) + 0.5))
    return History(writes, reads)


def test_zones_agree_with_an_exhaustive_search_on_made_up_histories() -> None:
    rng = random.Random(1)
    verdicts = [False, False]
    for _ in range(1_500):
        seen = made_up(rng)
        is_explained = explained_by_search(seen)
        assert (contradictions(seen) == []) == is_explained, seen
        verdicts[is_explained] = True
    assert all(verdicts), "only one kind of history was made up"
