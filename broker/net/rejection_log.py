"""What the log says of connections that are closed: enough to find a client, never a flood.

Source: docs/spec/reliability.md §8.2.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.protocol.errors import CorruptRequest

log = logging.getLogger(__name__)

KINDS_MAX: Final = 1000
"""Remembered; strangers choose client ids, so that there may be any number of kinds."""
REPEAT_S: Final = 60.0
"""A client that connects again and again leaves a line with its count so often."""
LINES_MAX: Final = 20
"""Warnings within REPEAT_S, whoever causes them."""
REASONS_MAX: Final = 30
"""Of reasons that are counted: there are a dozen, but some name what a peer sent."""
OTHER_REASON: Final = "other"
TEXT_MAX: Final = 200
"""Characters of a client id or a reason that are kept and told."""

Kind = tuple[str, str | None, str, str]
"""Host, client id, API and reason."""


@dataclass(slots=True)
class _Closings:
    count: int = 0
    logged_at_s: float | None = None


class RejectionLog:
    """Logs why connections are closed; one for the whole node."""

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        """Closed by us, by reason; what is beyond REASONS_MAX kinds is another reason."""
        self._logged: set[tuple[str, str]] = set()
        self._rejections: dict[Kind, _Closings] = {}
        self._began_s = 0.0
        self._lines = self._suppressed = 0

    def connection_rejected(self, host: str, reason: str, detail: str = "") -> None:
        """Log at INFO why a connection is closed, unless ``host`` was told so before.

        ``detail`` is for the log alone: names that peers bring are no label of a metric.
        """
        is_counted = reason in self.connections or len(self.connections) < REASONS_MAX
        self.connections[reason if is_counted else OTHER_REASON] += 1
        told = f"{reason}: {detail[:TEXT_MAX]}" if detail else reason
        is_new = (host, told) not in self._logged and len(self._logged) < KINDS_MAX
        if is_new:
            self._logged.add((host, told))
        level = logging.INFO if is_new else logging.DEBUG
        log.log(level, "closed connection host=%s reason=%.300r", host, told)

    def request_rejected(self, host: str, problem: CorruptRequest, now_s: float) -> None:
        """Log at WARNING that a connection is closed for what came on it, and how often by now.

        Most clients connect again at once and hang in that loop for ever: the line is how an
        operator finds them. The first closing of a kind is told, later ones once in REPEAT_S.
        """
        client_id = problem.client_id and problem.client_id[:TEXT_MAX]
        kind = (host, client_id, problem.api, str(problem)[:TEXT_MAX])
        closings = self._rejections.pop(kind, None)
        if closings is None:
            closings = _Closings()
            if len(self._rejections) >= KINDS_MAX:
                del self._rejections[next(iter(self._rejections))]
        self._rejections[kind] = closings  # the kind heard of last is forgotten last
        closings.count += 1
        if closings.logged_at_s is not None and now_s - closings.logged_at_s < REPEAT_S:
            return
        if self._may_log(now_s):
            closings.logged_at_s = now_s
            log.warning(
                "closed connection host=%s client_id=%r api=%s reason=%r count=%d",
                host,
                client_id,
                problem.api or "-",
                kind[-1],
                closings.count,
            )

    def _may_log(self, now_s: float) -> bool:
        """Whether another line is allowed; says first how many were not."""
        if now_s - self._began_s >= REPEAT_S:
            if self._suppressed:
                log.warning("closed connections of further kinds count=%d", self._suppressed)
            self._began_s, self._lines, self._suppressed = now_s, 0, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            return True
        self._suppressed += 1
        return False
