"""How rarely a node looks for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from barnabas.broker.runtime import gc_tuning

PYTHONS_THRESHOLDS = (700, 10, 10)


@pytest.fixture(autouse=True)
def untuned() -> Iterator[None]:
    """The process is that of other tests, too: neither side is to find what the other tuned."""
    _untune()
    gc.collect()
    yield
    _untune()


def _untune() -> None:
    gc.callbacks[:] = [one for one in gc.callbacks if not isinstance(one, gc_tuning.PauseLimit)]
    gc.set_threshold(*PYTHONS_THRESHOLDS)
    gc.unfreeze()


def test_what_a_start_made_is_never_looked_at_again() -> None:
    gc_tuning.tune()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == gc_tuning.THRESHOLDS


def test_what_the_first_load_made_is_never_looked_at_again_and_later_loads_are() -> None:
    gc_tuning.tune()
    once = gc_tuning.FirstLoadFreeze()
    frozen = gc.get_freeze_count()
    first = [[number] for number in range(1000)]
    once()
    assert gc.get_freeze_count() >= frozen + len(first)
    frozen = gc.get_freeze_count()
    second = [[number] for number in range(1000)]
    once()
    assert gc.get_freeze_count() < frozen + len(second)


def test_a_load_is_never_looked_at_while_it_goes_on_for_a_bounded_time() -> None:
    gc_tuning.tune()
    once = gc_tuning.FirstLoadFreeze()
    collected = gc.get_stats()[0]["collections"]
    kept = []
    for _ in range(50):
        kept.append([[number] for number in range(1000)])
        once.after_slice()
    assert gc.get_stats()[0]["collections"] == collected
    for _ in range(gc_tuning.SLICES_MAX):
        once.after_slice()
    frozen = gc.get_freeze_count()
    more = [[number] for number in range(1000)]
    once.after_slice()
    once()
    assert gc.get_freeze_count() < frozen + len(more)


def test_a_partition_that_cannot_be_loaded_ends_the_freezing() -> None:
    """It is tried again every 10 s, so something is left to be loaded for ever."""
    gc_tuning.tune()
    now = 100.0
    once = gc_tuning.FirstLoadFreeze(lambda: now)
    once.after_slice()
    now += gc_tuning.LOADING_S_MAX
    for later in (0.0, -1.0):
        now += later
        frozen = gc.get_freeze_count()
        made = [[number] for number in range(1000)]
        once.after_slice()
        assert gc.get_freeze_count() < frozen + len(made), "for good"


def test_a_load_in_a_process_that_was_not_spared_freezes_nothing() -> None:
    frozen = gc.get_freeze_count()
    gc_tuning.FirstLoadFreeze().after_slice()
    gc_tuning.FirstLoadFreeze()()
    assert gc.get_freeze_count() == frozen


def looked(limit: gc_tuning.PauseLimit, now: list[float], generation: int, took_s: float) -> int:
    """How many objects are left out of later looks after one of this length."""
    info = {"generation": generation, "collected": 0, "uncollectable": 0}
    limit("start", info)
    now[0] += took_s
    before = gc.get_freeze_count()
    limit("stop", info)
    return gc.get_freeze_count() - before


def test_what_survived_a_long_look_at_everything_is_left_out_of_later_ones() -> None:
    now = [100.0]
    limit = gc_tuning.PauseLimit(lambda: now[0])
    gc.collect()
    kept = [[number] for number in range(1000)]
    assert not looked(limit, now, gc_tuning.OLDEST, gc_tuning.FULL_S_MAX / 2)
    assert not looked(limit, now, gc_tuning.OLDEST - 1, gc_tuning.FULL_S_MAX * 2)
    assert looked(limit, now, gc_tuning.OLDEST, gc_tuning.FULL_S_MAX * 3) >= len(kept)
    assert limit.longest_s == pytest.approx(gc_tuning.FULL_S_MAX * 3)


def test_the_limit_is_told_of_looks_once_however_often_a_process_is_tuned() -> None:
    gc_tuning.tune()
    gc_tuning.tune()
    assert sum(isinstance(each, gc_tuning.PauseLimit) for each in gc.callbacks) == 1
    gc.collect()
    assert gc_tuning.longest_pause_s() > 0
