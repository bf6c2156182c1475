"""What a SASL mechanism looks like to the server: tokens in, an outcome or a failure out.

Source: docs/spec/security.md §2 (S24).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes of one token."""

    token: bytes = b""
    """For the peer."""
    name: str | None = None
    """Whom the peer has proved to be; None while another token is to come."""
    lifetime_ms: int | None = None
    """For how long the credential goes on to hold; None for ever."""
    refusal: str = ""
    """Why the login fails, for the log, where the peer is told so in ``token`` and has to take note
    of it: another token is to come."""
    is_by_token: bool = False
    """Whether a delegation token was proved: it cannot be used to have others made."""


class AuthenticationFailed(Exception):  # noqa: N818 - what happened
    """The login is over.

    ``message`` is told to the peer, so that it must not say whether a user exists; empty for the
    sentence that says nothing. ``name`` is who it said that it is, and ``reason`` what was wrong,
    for the log.
    """

    def __init__(self, message: str = "", name: str = "", reason: str = "") -> None:
        super().__init__(reason or message)
        self.message = message
        self.name = name


class Exchange(Protocol):
    """One login by one mechanism."""

    def evaluate(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        """Take the peer's next token; raises AuthenticationFailed, at once or when awaited."""
