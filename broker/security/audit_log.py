"""Who came in, who was refused, who changed what: one line of JSON each.

    {"time":"2026-11-27T14:00:00.123Z","event":"login","result":"success","listener":"USERS",
     "mechanism":"PLAIN","host":"10.0.0.1","principal":"User:alice"}

Strangers cause lines without end: what repeats is folded for ten seconds, and there are only so
many others. Names are cut, and JSON escapes what could forge a line; no line ever holds a token, a
password or the value of a setting. Source: docs/spec/security.md §8 (S76).
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

log = logging.getLogger("barnabas.audit")
log.setLevel(logging.INFO)  # whatever the level of the node's own log is

FOLD_S: Final = 10.0
"""The same failure or denial leaves one line in so many seconds."""
KINDS_MAX: Final = 1000
"""Failures that are remembered; strangers choose the names in them."""
LINES_MAX: Final = 1000
"""Lines within FOLD_S that peers cause without changing anything."""
TEXT_MAX: Final = 255
"""Characters of a name, address or reason that are told."""

CERTIFICATE: Final = "SSL"
"""The mechanism of who logs in by a certificate."""

Fields = Mapping[str, Any]
Later = Callable[[float, Callable[[], None]], object]


class _Fold:
    """One kind of failure: what it says, and how often it happened since its last line."""

    __slots__ = ("began", "count", "fields")

    def __init__(self, began: float, fields: Fields) -> None:
        self.began = began
        self.fields = fields
        self.count = 0


def to_logger(line: str) -> None:
    """Write to the logger ``barnabas.audit``, at INFO."""
    log.info("%s", line)


class AuditLog:
    """Writes the lines of one node.

    ``now`` is monotonic, in seconds; ``later`` calls back after so many, for what was folded:
    without it, that is told with the next line of its kind, or by :meth:`flush`.
    """

    def __init__(
        self,
        write: Callable[[str], None] = to_logger,
        *,
        now: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        later: Later | None = None,
    ) -> None:
        self._write = write
        self._now = now
        self._now_ms = now_ms
        self._later = later
        self._folds: dict[tuple[Any, ...], _Fold] = {}
        """By all that a failure says; the one that began first comes first."""
        self._is_due = False
        self.on_changed: list[Callable[[str, str, Fields], None]] = []
        """Told of changes, as :meth:`changed` is."""
        self._began = now()
        self._lines = self._suppressed = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        """What happened, by event and result, told or not."""

    def logged_in(self, *, listener: str, mechanism: str, host: str, principal: str) -> None:
        """A peer has proved who it is; ``mechanism`` may be CERTIFICATE."""
        self._tell(
            *("login", "success"),
            {"listener": listener, "mechanism": mechanism, "host": host, "principal": principal},
        )

    def login_failed(self, *, listener: str, mechanism: str, host: str, reason: str) -> None:
        """A peer has not; ``reason`` names the user that it wanted to be, and no secret."""
        self._fold(
            *("login", "failure"),
            {"listener": listener, "mechanism": mechanism, "host": host, "reason": reason},
        )

    def handshake_failed(self, *, listener: str, host: str, reason: str) -> None:
        """A TLS handshake came to nothing: a certificate was missing, expired or a stranger's."""
        self._fold(
            *("handshake", "failure"), {"listener": listener, "host": host, "reason": reason}
        )

    def denied(
        self, *, listener: str, host: str, principal: str, operation: str, resource: str, api: str
    ) -> None:
        """A peer may not do what it asked for."""
        self._fold(
            *("access", "denied"),
            {
                "listener": listener,
                "host": host,
                "principal": principal,
                "operation": operation,
                "resource": resource,
                "api": api,
            },
        )

    def changed(self, api: str, result: str, fields: Fields) -> None:
        """An administrator has changed something, or tried to: always told."""
        self._emit("change", result, {"api": api, **fields})
        for told in self.on_changed:
            told(api, result, fields)

    def certificate_read(self, *, listener: str, problem: str = "", not_after: str = "") -> None:
        """Certificates were read again; with a ``problem`` the former ones stay."""
        if problem:
            self._emit("certificate", "failure", {"listener": listener, "reason": problem})
        else:
            self._emit("certificate", "success", {"listener": listener, "not_after": not_after})

    def flush(self) -> None:
        """Tell what was folded and its time is over, or all at the end of the node."""
        self._flush(self._now() + FOLD_S)

    def _fold(self, event: str, result: str, fields: Fields) -> None:
        shown = {name: _shown(value) for name, value in fields.items()}
        now, kind = self._now(), (event, result, *shown.values())
        known = self._folds.get(kind)
        if known is not None and now - known.began < FOLD_S:
            known.count += 1
            self.counts[event, result] += 1
            self._call_later()
            return
        if known is not None:
            self._end(kind, known)
        if len(self._folds) >= KINDS_MAX:
            oldest = next(iter(self._folds))
            self._end(oldest, self._folds[oldest])
        self._folds[kind] = _Fold(now, shown)
        self._tell(event, result, shown)

    def _end(self, kind: tuple[Any, ...], fold: _Fold) -> None:
        """Forget a kind; tell how often it happened beside the line that it has."""
        del self._folds[kind]
        if fold.count:
            self._lines += 1
            self._write_line(kind[0], kind[1], {**fold.fields, "count": fold.count})

    def _call_later(self) -> None:
        if self._later is not None and not self._is_due:
            self._is_due = True
            self._later(FOLD_S, self._on_time)

    def _on_time(self) -> None:
        self._is_due = False
        self._flush(self._now())
        if any(fold.count for fold in self._folds.values()):
            self._call_later()

    def _flush(self, now: float) -> None:
        for kind, fold in list(self._folds.items()):
            if now - fold.began >= FOLD_S:
                self._end(kind, fold)

    def _tell(self, event: str, result: str, fields: Fields) -> None:
        """What peers cause: bounded."""
        now = self._now()
        if now - self._began >= FOLD_S:
            if self._suppressed:
                self._write_line("suppressed", "", {"count": self._suppressed})
            self._began, self._lines, self._suppressed = now, 0, 0
        self._lines += 1
        if self._lines > LINES_MAX:
            self._suppressed += 1
            self.counts[event, result] += 1
            return
        self._emit(event, result, fields)

    def _emit(self, event: str, result: str, fields: Fields) -> None:
        self.counts[event, result] += 1
        self._write_line(event, result, fields)

    def _write_line(self, event: str, result: str, fields: Fields) -> None:
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        told = {"time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        told["event"] = event
        if result:
            told["result"] = result
        told |= {name: _shown(value) for name, value in fields.items()}
        self._write(json.dumps(told, separators=(",", ":")))


def _shown(value: Any) -> Any:
    """A text that is not too long; numbers and lists as they are."""
    return value[:TEXT_MAX] if isinstance(value, str) else value
