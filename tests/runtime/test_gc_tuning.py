"""How rarely a node looks for cycles."""

from __future__ import annotations

import gc

from barnabas.broker.runtime import gc_tuning


def test_what_a_start_made_is_never_looked_at_again() -> None:
    before = gc.get_threshold()
    try:
        gc_tuning.tune()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == gc_tuning.THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_what_the_first_load_made_is_never_looked_at_again_and_later_loads_are() -> None:
    before = gc.get_threshold()
    try:
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
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_a_load_is_never_looked_at_while_it_goes_on_for_a_bounded_time() -> None:
    before = gc.get_threshold()
    try:
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
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_a_partition_that_cannot_be_loaded_ends_the_freezing() -> None:
    """It is tried again every 10 s, so something is left to be loaded for ever."""
    before = gc.get_threshold()
    try:
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
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_a_load_in_a_process_that_was_not_spared_freezes_nothing() -> None:
    frozen = gc.get_freeze_count()
    gc_tuning.FirstLoadFreeze().after_slice()
    gc_tuning.FirstLoadFreeze()()
    assert gc.get_freeze_count() == frozen
