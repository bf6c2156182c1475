"""Who is logged in: sessions in memory, lost with the process and never written anywhere.

Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .roles import FULL, Rights
from .watch.cluster_watch import ClusterWatch

IDLE_S: Final = 30 * 60.0
LIFE_S: Final = 12 * 3600.0
SESSIONS_MOST: Final = 500
LOGINS: Final = 5
LOGINS_WITHIN_S: Final = 60.0
ADDRESSES_MOST: Final = 10_000
_ID_BYTES: Final = 32

Clock = Callable[[], float]


@dataclass(slots=True)
class Session:
    """One browser that has logged in; ``watch`` asks the cluster for it."""

    id: str
    principal: str
    """As the audit trail and the head of each page name it."""
    watch: ClusterWatch
    owns_watch: bool
    """Its connections are its own: they end with it."""
    began: float
    seen: float
    rights: Rights = FULL
    """What it may do here; the cluster decides besides."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    plans: OrderedDict[str, object] = field(default_factory=OrderedDict)
    """Changes that were planned and not applied yet, the latest few."""
    results: OrderedDict[str, object] = field(default_factory=OrderedDict)
    """Changes that were applied, the latest few."""


class Sessions:
    """All sessions; the longest unused one makes room for one too many."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._by_id: OrderedDict[str, Session] = OrderedDict()
        self.ended: list[ClusterWatch] = []
        """Watches whose sessions have gone, still to be closed."""

    def begin(
        self, principal: str, watch: ClusterWatch, *, owns_watch: bool, rights: Rights = FULL
    ) -> Session:
        """A new session under a new id."""
        now = self._clock()
        made = Session(
            secrets.token_urlsafe(_ID_BYTES), principal, watch, owns_watch, began=now, seen=now,
            rights=rights,
        )  # fmt: skip
        self._expire(now)
        while len(self._by_id) >= SESSIONS_MOST:
            self._forget(next(iter(self._by_id)))
        self._by_id[made.id] = made
        return made

    def find(self, session_id: str, *, is_used: bool = True) -> Session | None:
        """The session of a cookie; None for one that ended or never was.

        ``is_used``: somebody sits there; a page that refreshes itself keeps no session alive.
        """
        now = self._clock()
        self._expire(now)
        found = self._by_id.get(session_id)
        if found is not None and is_used:
            found.seen = now
            self._by_id.move_to_end(session_id)
        return found

    def end(self, session: Session) -> None:
        """Somebody logged out."""
        self._forget(session.id)

    def end_all(self) -> None:
        """The console stops."""
        for session_id in list(self._by_id):
            self._forget(session_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def _expire(self, now: float) -> None:
        for session in list(self._by_id.values()):
            if now - session.seen > IDLE_S or now - session.began > LIFE_S:
                self._forget(session.id)

    def _forget(self, session_id: str) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None and session.owns_watch:
            self.ended.append(session.watch)


class LoginThrottle:
    """Five attempts a minute from one address."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._attempts: OrderedDict[str, deque[float]] = OrderedDict()

    def admit(self, address: str) -> bool:
        """Whether an attempt from there is looked at; counts it if so."""
        now = self._clock()
        attempts = self._attempts.setdefault(address, deque())
        self._attempts.move_to_end(address)
        while len(self._attempts) > ADDRESSES_MOST:
            self._attempts.popitem(last=False)
        while attempts and now - attempts[0] > LOGINS_WITHIN_S:
            attempts.popleft()
        if len(attempts) >= LOGINS:
            return False
        attempts.append(now)
        return True


class Token:
    """What is printed once at the start, and opens the console."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(_ID_BYTES)

    def matches(self, given: str) -> bool:
        """In a time that does not depend on how much of it is right."""
        return hmac.compare_digest(given.encode(), self.text.encode())

    def __repr__(self) -> str:
        """Without the token."""
        return "Token([hidden])"
