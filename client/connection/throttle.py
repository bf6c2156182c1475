"""How long a broker wants to be left alone: ``throttle_time_ms`` of its answers (KIP-219).

Since Kafka 2.0 a broker answers at once and does not read the connection for that long; a client
that sends all the same waits as long, and takes the broker for dead when its time-out is shorter.
Older brokers held the answer back instead, and what they tell is over when it comes: which of both
it is tells the version of the request. Source: KIP-219; docs/spec/security.md §4 (S61).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.protocol.api import ApiKey

_SINCE: Final = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DESCRIBE_CONFIGS: 2,
}
"""Kafka's own table (``shouldClientThrottle``); the others since version 1, and those that came
after KIP-219 always."""
_NEWER: Final = ApiKey.ELECT_LEADERS
_OTHERS: Final = 1


def is_for_client(key: int, version: int) -> bool:
    """Whether the client has to wait for what this answer tells, and not the broker did."""
    return key >= _NEWER or version >= _SINCE.get(key, _OTHERS)  # type: ignore[call-overload]


class Throttle:
    """Holds the requests of one connection back, in their order."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ends_at = float("-inf")
        self._held = 0
        self._turns = asyncio.Lock()

    @property
    def holds(self) -> bool:
        """Whether the next request has to wait: for the broker, or for those that do already."""
        return self._held > 0 or self._ends_at > self._now()

    def tell(self, key: int, version: int, throttle_time_ms: int) -> None:
        """What an answer says."""
        if is_for_client(key, version):
            self._ends_at = max(self._ends_at, self._now() + throttle_time_ms / 1000)

    async def passed(self) -> None:
        """Return when the request may be sent; those that came first go first."""
        self._held += 1
        try:
            async with self._turns:
                # What is told meanwhile makes it later; no event tells of a time.
                while (left_s := self._ends_at - self._now()) > 0:  # noqa: ASYNC110
                    await asyncio.sleep(left_s)
        finally:
            self._held -= 1
