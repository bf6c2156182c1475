"""How often Python looks for cycles in a node that keeps many small objects for long.

Reference counts free nearly everything here at once. The collector is for the rest: tracebacks,
cancelled tasks. At the default settings it walks through all that one turn's commits have made
every 50 commits or so, and every now and then through the whole cache of offsets.
Measured with 300 000 offsets cached: a commit 28 us by default, 19 us so; pipelined 18 us, 10 us.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Final

THRESHOLDS: Final = (20_000, 1, 1)
"""New objects before the youngest generation is looked at; rounds before the older ones are.

Bounds what waits in cycles to a few megabytes. The second generation is looked at while it is
small, at 40,000 objects, some 5 ms at a time instead of 80: each object is looked at as often, but
not so many at once. 100,000 members who joined, and a load of a million offsets, made the
difference felt by others. The oldest is looked at when 80,000 objects at most came to it."""
FULL_S_MAX: Final = 0.03
"""A look at the oldest generation that takes longer has its survivors left out of all later ones.

Two million objects took 1.2 to 1.6 s, and the node's lease is over after half a second."""


def tune() -> None:
    """Collect rarely from now on, and never look again at what is there now: what start-up made."""
    if _pauses not in gc.callbacks:
        gc.callbacks.append(_pauses)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    global _in_force
    _in_force = gc.get_threshold()


class PauseLimit:
    """Keeps a look at everything short, however much a node keeps.

    What has survived a long one is not looked at any more: it is freed when nobody refers to it,
    and if it is in a cycle by then, never. So what nodes keep for long and in numbers must end in
    no cycle (docs/decisions/0013). In a node that keeps little every look is short, and nothing is
    left out.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began = 0.0
        self.longest_s = 0.0
        """The longest look so far, of any generation."""

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """The collector tells when it begins and when it is done."""
        if phase == "start":
            self._began = self._monotonic()
            return
        took_s = self._monotonic() - self._began
        self.longest_s = max(self.longest_s, took_s)
        if info["generation"] == OLDEST and took_s > FULL_S_MAX:
            gc.freeze()


_in_force: tuple[int, int, int] | None = None
"""What THRESHOLDS became here: Python 3.14.0 to 3.14.4 keep no third one."""
OLDEST: Final = 2
_pauses: Final = PauseLimit()


def longest_pause_s() -> float:
    """How long this process stood still at most while the collector looked for cycles."""
    return _pauses.longest_s


SLICES_MAX: Final = 20_000
"""40 s of loading."""
LOADING_S_MAX: Final = 60.0
"""A partition that cannot be loaded is tried for ever: the first load is over by then."""


class FirstLoadFreeze:
    """Keeps what the first load makes out of all collections: a third of its time went there.

    Only in a process that was spared, and only once, for a bounded time: what is alive then and
    ends in cycles later is never freed, which is little once and would add up. Offsets end in no
    cycle (`service.py`).
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._slices_left = SLICES_MAX
        self._monotonic = monotonic
        self._ends: float | None = None
        """When it is over, however much is left; None before the first slice."""

    def after_slice(self) -> None:
        """One slice of a load is done, others may follow."""
        if self._slices_left and gc.get_threshold() == _in_force:
            now = self._monotonic()
            if self._ends is None:
                self._ends = now + LOADING_S_MAX
            if now >= self._ends:
                self._slices_left = 0
                return
            self._slices_left -= 1
            gc.freeze()

    def __call__(self) -> None:
        """Nothing is left to be loaded."""
        self.after_slice()
        self._slices_left = 0
