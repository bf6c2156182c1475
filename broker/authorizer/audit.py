"""The audit log of decisions, line by line as Kafka's: what was denied, and at DEBUG what was not.

    Principal = User:alice is Denied Operation = Read from host = 10.0.0.1 on resource =
    Topic:LITERAL:foo for request = Fetch with resourceRefCount = 2

Strangers choose names and may ask without end: a line that repeats is folded for ten seconds, and
there are only so many others. Source: docs/spec/security.md §3 (S53); Kafka 3.9 AclAuthorizer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.protocol.acl import Operation, PatternType, ResourceType

from .acl import Subject

log = logging.getLogger("kafka.authorizer.logger")

FOLD_S: Final = 10.0
"""The same denial leaves one line in so many seconds."""
KINDS_MAX: Final = 1000
"""Denials that are remembered; strangers choose the names in them."""
LINES_MAX: Final = 100
"""Denials that leave a line within FOLD_S, whoever causes them."""
TEXT_MAX: Final = 255
"""Characters of a principal or name that are told."""

TRACE: Final = 5
"""Kafka's level below DEBUG: for decisions that only filter what is shown."""

Kind = tuple[str, str, Operation, ResourceType, str, str]
"""Principal, host, operation, type of resource, name and request."""


class Audit:
    """Writes the lines of one node; ``now`` gives seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._denied: dict[Kind, tuple[float, int]] = {}
        """When a line was written of each kind, and how many were not since; oldest first."""
        self._began = now()
        self._lines = self._suppressed = 0

    @property
    def tells_all(self) -> bool:
        """Whether what is allowed is told as well, so that no decision may be cached."""
        return log.isEnabledFor(logging.DEBUG)

    def allowed(
        self,
        who: Subject,
        operation: Operation,
        kind: ResourceType,
        name: str,
        request: str,
        count: int,
    ) -> None:
        """Note at DEBUG what may be done; a filter notes nothing, as far as it lets pass."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", _line("Allowed", who, operation, kind, name, request, count))

    def filtered(
        self, who: Subject, operation: Operation, kind: ResourceType, name: str, request: str
    ) -> None:
        """Note at TRACE what is only left out of an answer."""
        if log.isEnabledFor(TRACE):
            log.log(TRACE, "%s", _line("Denied", who, operation, kind, name, request, 1))

    def denied(
        self,
        who: Subject,
        operation: Operation,
        kind: ResourceType,
        name: str,
        request: str,
        count: int,
    ) -> None:
        """Note at INFO what was refused; ``count`` is how often the request names it."""
        if not log.isEnabledFor(logging.INFO):
            return
        now = self._now()
        key = (who.principal, who.hosts[0], operation, kind, name[:TEXT_MAX], request)
        told = self._denied.pop(key, None)
        if told is not None and now - told[0] < FOLD_S:
            self._denied[key] = (told[0], told[1] + 1)
            return
        if not self._may_log(now):
            return
        self._denied[key] = (now, 0)
        if len(self._denied) > KINDS_MAX:
            del self._denied[next(iter(self._denied))]
        line = _line("Denied", who, operation, kind, name, request, count)
        if told is not None and told[1]:
            line += f"; {told[1]} more in {now - told[0]:.0f} s"
        log.info("%s", line)

    def _may_log(self, now: float) -> bool:
        if now - self._began >= FOLD_S:
            if self._suppressed:
                log.info("Denied %d requests more", self._suppressed)
            self._began, self._lines, self._suppressed = now, 0, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            return True
        self._suppressed += 1
        return False


def _line(
    verdict: str,
    who: Subject,
    operation: Operation,
    kind: ResourceType,
    name: str,
    request: str,
    count: int,
) -> str:
    resource = f"{kind.word}:{PatternType.LITERAL.name}:{_shown(name)}"
    return (
        f"Principal = {_shown(who.principal)} is {verdict} Operation = {operation.word} "
        f"from host = {who.hosts[0]} on resource = {resource} for request = {request} "
        f"with resourceRefCount = {count}"
    )


def _shown(text: str) -> str:
    """Names as they are, unless they could forge a line of their own."""
    text = text[:TEXT_MAX]
    return text if text.isprintable() else repr(text)
