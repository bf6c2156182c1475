"""How long the answer to a failed login is held back: guessing passwords takes time.

Source: docs/spec/security.md §2 (S24).
"""

from __future__ import annotations

from typing import Final

FAILURES_PER_S: Final = 10
"""More from one address make each of them wait longer."""
LONG_DELAY_S: Final = 1.0
HOSTS_MAX: Final = 10_000
"""Remembered; the one that failed longest ago is forgotten first."""


class FailureDelays:
    """One for the whole node; times are of a clock that never goes back."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_s = delay_ms / 1000
        self._hosts: dict[str, tuple[float, int]] = {}
        """When a second began in which logins failed, and how many did in it."""

    def after_failure(self, host: str, now: float) -> float:
        """Count a failure; for how many seconds its answer waits."""
        began, count = self._hosts.pop(host, (now, 0))
        if now - began >= 1.0:
            began, count = now, 0
        self._hosts[host] = (began, count + 1)
        if len(self._hosts) > HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        return max(self._delay_s, LONG_DELAY_S if count >= FAILURES_PER_S else 0.0)
