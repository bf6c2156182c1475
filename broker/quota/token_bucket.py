"""A bucket that fills at a rate; who takes more than is in it leaves a debt to those who come next.

Time is an argument, in seconds. Source: docs/spec/security.md §4 (S63); KIP-599; Kafka's
TokenBucket.
"""

from __future__ import annotations

from .rate import rounded_ms


class TokenBucket:
    """Full at first."""

    __slots__ = ("_filled_at", "burst", "rate", "tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """``burst`` is how much it holds, ``rate`` what comes in a second."""
        self.rate = rate
        self.burst = burst
        self.tokens = burst
        self._filled_at = now

    def use(self, rate: float, burst: float, now: float) -> None:
        """Another rate from now on; a debt stays, what would be too much does not."""
        self._refill(now)
        self.rate, self.burst = rate, burst
        self.tokens = min(self.tokens, burst)

    def take(self, count: float, now: float) -> None:
        """Take tokens, of which there may be too few."""
        self._refill(now)
        self.tokens = min(self.burst, self.tokens - count)

    def throttle_ms(self, now: float) -> int:
        """How long until the debt is paid; 0 while there is none."""
        self._refill(now)
        return rounded_ms(-self.tokens / self.rate) if self.tokens < 0 else 0

    def _refill(self, now: float) -> None:
        self.tokens = min(self.burst, self.tokens + max(0.0, now - self._filled_at) * self.rate)
        self._filled_at = now
