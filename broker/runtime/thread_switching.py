"""How soon a thread beside the loop gets Python's interpreter lock while the loop is always busy.

kazoo's thread takes the lock about ten times for one answer of ZooKeeper. It asks for it only when
it has waited a whole switch interval *without being woken*; uvloop lets go for microseconds after
each callback, which wakes it, too late to get it, and its wait begins anew. With callbacks shorter
than the interval it never asks and lives by luck: the controller lost its authority for seconds.
So the interval has to be shorter than what one read of a connection serves.

Measured (docs/decisions/0010): one node, fetches of offsets, worst authority check of 70, with 8
connections x 64, 8 and 4 requests in flight: 5 ms 1.6 s, 80 ms, 40 ms, and 390,000 of 530,000
refused; 0.1 ms 20, 490, 230 ms, 37,000 of 326,000 refused; 10 us 18, 25, 33 ms, none refused.
It costs nothing while no other thread wants the lock, and no more than noise (2 %) while one does.
"""

from __future__ import annotations

import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 10e-6
"""Python's default is 5 ms. Less brings nothing: the kernel's timers are 50 us late anyway."""


def shorten_switch_interval() -> None:
    """Let other threads of this process have their turn in time; call it before they start."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
