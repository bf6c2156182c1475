"""How rarely a node looks for cycles."""

from __future__ import annotations

import gc

from barnabas.broker import collector


def test_what_a_start_made_is_never_looked_at_again() -> None:
    before = gc.get_threshold()
    try:
        collector.spare()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == collector.THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
