"""How long a member may be silent before its group goes on without it: the session timeout.

Source: docs/spec/coordinator.md §5.2. timer.py holds the deadlines; rebalance.py removes members.

A session is one deadline for each member. Every request of a member that its group accepts renews
it: JoinGroup, SyncGroup, Heartbeat and OffsetCommit. A session that expires removes the member.

Two kinds of member are silent because they wait for us. Without the first rule below a member
whose group takes longer to rebalance than its session lasts would be removed, join again and delay
the group once more, for ever. Without the second a client that gives up waiting and joins again
under a new id would leave one more member behind each time, for as long as the rebalance lasts
(KAFKA-7610).

- A member whose JoinGroup or SyncGroup is pending, or whose answer is about to be sent, does not
  expire. Its session is renewed when the answer is sent.
- A member that was never answered has :data:`NEW_MEMBER_JOIN_TIMEOUT_MS` for that, whatever it
  asked for, and nothing renews its session before the first answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .config import CoordinatorConfig
from .group import Member
from .timer import Deadline, TimerQueue

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a member may wait that was never answered: its client may be gone (KAFKA-7610)."""


class Sessions:
    """Starts, renews and ends the sessions of the members of all groups of a coordinator."""

    __slots__ = ("_config", "_timers")

    def __init__(self, config: CoordinatorConfig, timers: TimerQueue) -> None:
        self._config = config
        self._timers = timers

    def is_allowed(self, session_timeout_ms: int) -> bool:
        """Whether a member may ask for this timeout; else it is told INVALID_SESSION_TIMEOUT.

        The lower bound keeps one garbage collection in a client from costing its group a
        rebalance, the upper one a dead member from keeping its partitions for hours.
        """
        config = self._config
        return config.session_timeout_min_ms <= session_timeout_ms <= config.session_timeout_max_ms

    @staticmethod
    def prepare(member: Member, on_expired: Callable[[], None]) -> None:
        """Give a member its session, not yet running."""
        member.session = Deadline(on_expired)

    def begin_first_join(self, member: Member) -> None:
        """The member is new: its session is the wait for its first answer."""
        self._timers.start(member.session, NEW_MEMBER_JOIN_TIMEOUT_MS)

    def renew(self, member: Member) -> None:
        """The member gave a sign of life.

        On the path of every commit and heartbeat: it stores one number (timer.py).
        """
        if not member.is_new:
            self._timers.start(member.session, member.session_timeout_ms)

    def end(self, member: Member) -> None:
        """The member is gone, or its group is."""
        self._timers.end(member.session)

    @staticmethod
    def has_expired(member: Member) -> bool:
        """Whether an expired session means that the member is gone: see the top of this file."""
        return member.is_new or not member.is_waiting
