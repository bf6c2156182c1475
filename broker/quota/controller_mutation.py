"""How many partitions a client may have created, added and deleted: a bucket that fills slowly.

The first request that finds tokens is served whole, however large it is; its debt is what the next
one meets. Source: docs/spec/security.md §4 (S63); KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.protocol.errors import ErrorCode, Refused

from .client_quotas import Counter
from .quota_table import QuotaTable
from .rate import Windows
from .recent import Recent
from .token_bucket import TokenBucket

EXCEEDED: Final = "The throttling quota has been exceeded."


class MutationQuota:
    """What one request may still have changed."""

    __slots__ = ("_bucket", "_is_strict", "_now", "_recorded_at", "_throttle_ms")

    def __init__(
        self, bucket: TokenBucket | None, now: Callable[[], float], *, is_strict: bool
    ) -> None:
        """``bucket`` None: whatever it asks for."""
        self._bucket = bucket
        self._now = now
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._recorded_at = 0.0

    def record(self, partitions: int) -> None:
        """Pay for a change before it is made.

        Raises Refused(THROTTLING_QUOTA_EXCEEDED) where a strict one finds a debt; nothing is taken
        then.
        """
        if self._bucket is None:
            return
        now = self._now()
        if self._is_strict:
            if owed_ms := self._bucket.throttle_ms(now):
                self._throttle_ms, self._recorded_at = owed_ms, now
                raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
            self._bucket.take(partitions, now)
            return
        self._bucket.take(partitions, now)
        if owed_ms := self._bucket.throttle_ms(now):
            self._throttle_ms, self._recorded_at = owed_ms, now

    @property
    def throttle_ms(self) -> int:
        """How long its client is to be throttled, less the time since: the answer may be late."""
        passed_ms = (self._now() - self._recorded_at) * 1000
        return max(0, round(self._throttle_ms - passed_ms)) if self._throttle_ms else 0


class ControllerMutationQuotas:
    """A bucket for each whom a bound counts for, holding what comes in all windows."""

    def __init__(self, table: QuotaTable, windows: Windows, now: Callable[[], float]) -> None:
        self._table = table
        self._burst_s = windows.number * windows.seconds
        self._now = now
        self._buckets: Recent[Counter, TokenBucket] = Recent()

    def of(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        """The quota of one request; ``is_strict``: its version knows the code 89."""
        match = self._table.match(user, client_id)
        if match is None:
            return MutationQuota(None, self._now, is_strict=is_strict)
        now, rate, burst = self._now(), match.bound, match.bound * self._burst_s
        bucket = self._buckets.get(match.counter, now, lambda: TokenBucket(rate, burst, now))
        if bucket.rate != rate:
            bucket.use(rate, burst, now)
        return MutationQuota(bucket, self._now, is_strict=is_strict)
