"""A line of the log for each request that took long: ``slow.request.log.ms``.

Source: docs/spec/console.md §6. What Kafka's request log tells, of the slow ones only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from barnabas.broker.handlers.call import Call

log = logging.getLogger(__name__)

WAIT_BY_DESIGN: Final = frozenset({"Fetch", "JoinGroup", "SyncGroup"})
"""Their answers wait for records, for members, for the leader of a group."""
LINES_A_MINUTE: Final = 60
_MINUTE_S: Final = 60.0


class SlowRequestLog:
    """Logs what took more than ``limit_ms``; beyond LINES_A_MINUTE it only counts."""

    def __init__(self, limit_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_ms / 1000
        self._clock = clock
        self._minute = clock()
        self._lines = self._left_out = 0

    def notice(self, api: str, call: Call, seconds: float) -> None:
        """A request was answered after so long."""
        if seconds <= self._limit_s:
            return
        if self._clock() - self._minute >= _MINUTE_S:
            if self._left_out:
                log.warning("slow requests not logged count=%d", self._left_out)
            self._minute, self._lines, self._left_out = self._clock(), 0, 0
        if self._lines >= LINES_A_MINUTE:
            self._left_out += 1
            return
        self._lines += 1
        log.warning(
            "slow request api=%s version=%d client_id=%r host=%s ms=%d",
            api,
            call.version,
            call.client_id,
            call.peer.host,
            seconds * 1000,
        )
