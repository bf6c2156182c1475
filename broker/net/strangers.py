"""Peers that have not proved who they are: they share little, and who waits longest goes first.

Source: docs/spec/security.md §7 (S75).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from .connection_quotas import ConnectionQuotas

STRANGERS_BYTES_MAX: Final = 16 << 20
"""Held of all their frames together, beside what may be held of others."""
REASON: Final = "not authenticated, and others wait"


class Stranger(Protocol):
    """Somebody who may be closed for another one: in a TLS handshake, or before a login."""

    def time_out(self, reason: str) -> None:
        """Close it at once."""


class Strangers:
    """Those on listeners of clients; nodes have places of their own."""

    def __init__(self, quotas: ConnectionQuotas) -> None:
        self._quotas = quotas
        self._waiting: dict[Stranger, None] = {}
        """In the order in which they came; who has ended a handshake and logs in comes anew."""

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, stranger: Stranger) -> None:
        """One more; the oldest is closed where they would have more than their share."""
        self._waiting[stranger] = None
        # Half of all: or whoever opens many connections and says nothing keeps everybody out, for
        # as long as each of them is given to prove itself.
        if len(self._waiting) > self._quotas.strangers_max:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.time_out(REASON)

    def leave(self, stranger: Stranger) -> None:
        """It has proved who it is, or is gone; harmless for one that is no stranger."""
        self._waiting.pop(stranger, None)
