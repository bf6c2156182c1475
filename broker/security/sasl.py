"""One peer's way from stranger to principal, on a listener that asks for it.

    HANDSHAKE -- SaslHandshake v1 --> TOKEN ------- SaslAuthenticate ..--> DONE
        |                               ^                                    |
        '------- SaslHandshake v0 --> BARE_TOKEN -- frames of tokens ..----->'
                                        '-- SaslHandshake, where the session ends --'

Each token is judged in CHECKING; what fails is FAILED and goes away. Source: KIP-43 (handshake v0,
bare tokens), KIP-152 (v1, SaslAuthenticate), KIP-368 (sessions that end);
docs/spec/security.md §2 (S20 to S25, S38).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from barnabas.protocol.errors import ErrorCode, Refused

from .exchange import AuthenticationFailed, Exchange, Outcome
from .failure_delays import FailureDelays

log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"
NAME_CHARACTERS_MAX: Final = 255
REAUTHENTICATION_S_MIN: Final = 1.0
"""A login is repeated once in so long at most."""
AFTER_LOGIN: Final = "SaslAuthenticate request received after successful authentication"
EXPIRED: Final = "expired"
"""Among the results of logins: a connection that was closed because its session had ended."""
_WILDCARD: Final = "*"


class Stage(Enum):
    """What a peer may do next."""

    HANDSHAKE = "choose a mechanism"
    TOKEN = "send a token inside SaslAuthenticate"  # noqa: S105 - a stage, not a secret
    BARE_TOKEN = "send a token alone in a frame"  # noqa: S105
    CHECKING = "wait"
    DONE = "ask for anything"
    FAILED = "go away"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslTerms:
    """What one listener asks of its peers."""

    listener: str
    mechanisms: Mapping[str, Callable[[], Exchange]]
    """In the order in which peers are told of them."""
    delays: FailureDelays
    session_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism, for how long a login holds at most; 0 or missing for ever."""
    receive_bytes_max: int = 524_288
    """A longer frame closes the connection of a stranger."""
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Logins by listener, mechanism and result, of the whole node."""


class SaslServer:
    """The proof that one connection gives of who it is; ``now`` is a monotonic clock in seconds."""

    __slots__ = (
        "_began",
        "_exchange",
        "_is_bare",
        "_is_noted",
        "_mechanism",
        "_now",
        "_proved_by",
        "_terms",
        "is_by_token",
        "is_proved",
        "on_authenticated",
        "on_failure",
        "principal",
        "session_expires_ms",
        "session_lifetime_ms",
        "stage",
    )

    def __init__(self, terms: SaslTerms, now: Callable[[], float]) -> None:
        self._terms = terms
        self._now = now
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._proved_by = ""
        self._is_bare = False
        self._is_noted = False
        """That the login fails is counted and logged, though the peer is not told yet."""
        self._began = -REAUTHENTICATION_S_MIN
        self.stage = Stage.HANDSHAKE
        self.principal = ANONYMOUS
        self.is_proved = False
        """The peer has logged in once, and may be about to do it again."""
        self.is_by_token = False
        """It did so by a delegation token, not by what is its own."""
        self.session_expires_ms: float | None = None
        """When the login has to be repeated, on the clock ``now``; None for never."""
        self.session_lifetime_ms = 0
        """What the peer is told of that: from the login to the end, 0 for no end."""
        self.on_authenticated: Callable[[], None] = _nothing
        self.on_failure: Callable[[str], None] = _nothing_of
        """Told what was wrong, for the log."""

    def tell_nobody(self) -> None:
        """The connection is gone: forget who was to be told."""
        self.on_authenticated, self.on_failure = _nothing, _nothing_of

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What there is to choose from."""
        return tuple(self._terms.mechanisms)

    @property
    def mechanism(self) -> str:
        """The one that was chosen; empty before."""
        return self._mechanism

    @property
    def receive_bytes_max(self) -> int:
        """How long a frame may be while the peer is a stranger."""
        return self._terms.receive_bytes_max

    def has_expired(self) -> bool:
        """Whether the login had to be repeated by now."""
        expires_ms = self.session_expires_ms
        return expires_ms is not None and self._now() * 1000 >= expires_ms

    def note_expired(self) -> None:
        """Count a connection that is closed since its login was not repeated in time."""
        self._terms.counts[self._terms.listener, self._mechanism, EXPIRED] += 1

    def failure_delay_s(self, host: str) -> float:
        """How long the answer to a failure that just was is held back."""
        return self._terms.delays.after_failure(host, self._now())

    def choose(self, mechanism: str, handshake_version: int) -> None:
        """Start an exchange; raises Refused (33 or 34) for what cannot be started.

        The connection of a peer in FAILED is to be closed.
        """
        if self.stage is Stage.DONE:
            self._begin_again(handshake_version)
        elif self.stage is not Stage.HANDSHAKE:
            self.stage = Stage.FAILED
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, "the mechanism is chosen")
        made = self._terms.mechanisms.get(mechanism)
        if made is None:
            self._failed("", f"unknown mechanism {mechanism[:NAME_CHARACTERS_MAX]!r}")
            names = ", ".join(self._terms.mechanisms)
            raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"only {names}")
        self._exchange, self._mechanism, self._is_noted = made(), mechanism, False
        self._is_bare = handshake_version == 0
        self.stage = Stage.BARE_TOKEN if self._is_bare else Stage.TOKEN

    def evaluate(self, token: bytes) -> bytes | Awaitable[bytes]:
        """The answer to a token; raises Refused (34 or 58), at once or when awaited."""
        if self.stage is Stage.DONE:
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, AFTER_LOGIN)
        if self.stage not in (Stage.TOKEN, Stage.BARE_TOKEN):
            self.stage = Stage.FAILED
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, "no token is expected now")
        assert self._exchange is not None, "a mechanism is chosen"
        self.stage = Stage.CHECKING
        try:
            if self._proved_by and self._mechanism != self._proved_by:
                raise AuthenticationFailed(
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._proved_by}'"
                )
            outcome = self._exchange.evaluate(bytes(token))
            if isinstance(outcome, Outcome):
                return self._take(outcome)
        except AuthenticationFailed as failure:
            raise self._refusal(failure) from None
        return self._take_later(outcome)

    async def _take_later(self, outcome: Awaitable[Outcome]) -> bytes:
        try:
            return self._take(await outcome)
        except AuthenticationFailed as failure:
            raise self._refusal(failure) from None

    def _begin_again(self, handshake_version: int) -> None:
        """Repeat the login: only where the session ends, and not all the time."""
        now = self._now()
        too_soon = now - self._began < REAUTHENTICATION_S_MIN
        if self.session_expires_ms is None or too_soon or handshake_version == 0:
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, "logged in already")
        self._began = now

    def _take(self, outcome: Outcome) -> bytes:
        # Whoever sent something else while its password was checked has failed already.
        if self.stage is not Stage.CHECKING:
            raise AuthenticationFailed(reason="more than one message at once")
        if outcome.refusal:
            # Now: whoever is told why may go away without another word.
            self._note_failure(self._mechanism, self._described(outcome.refusal, ""))
        if outcome.name is None:
            self.stage = Stage.BARE_TOKEN if self._is_bare else Stage.TOKEN
            return outcome.token
        principal = f"User:{outcome.name}"
        if not _may_log_in(outcome.name):
            raise AuthenticationFailed(name=outcome.name, reason="nobody may be called so")
        if self.is_proved and principal != self.principal:
            raise AuthenticationFailed(
                "Cannot change principals during re-authentication", outcome.name
            )
        self.is_by_token = outcome.is_by_token
        self._authenticated(principal, outcome.lifetime_ms)
        return outcome.token

    def _authenticated(self, principal: str, lifetime_ms: int | None) -> None:
        limit_ms = self._terms.session_ms.get(self._mechanism, 0)
        bounds = [bound for bound in (limit_ms or None, lifetime_ms) if bound is not None]
        now = self._now()
        self.session_lifetime_ms = max(0, min(bounds)) if bounds else 0
        self.session_expires_ms = now * 1000 + self.session_lifetime_ms if bounds else None
        if not self.is_proved:
            self._began = now
        self._exchange = None
        self._proved_by = self._mechanism
        self.principal, self.is_proved = principal, True
        self.stage = Stage.DONE
        self._terms.counts[self._terms.listener, self._mechanism, "success"] += 1
        self.on_authenticated()

    def _refusal(self, failure: AuthenticationFailed) -> Refused:
        message = failure.message or (
            f"Authentication failed during {self._kind} due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )
        self._failed(self._mechanism, self._described(str(failure), failure.name))
        return Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, message)

    def _described(self, reason: str, name: str) -> str:
        return (
            f"{self._kind} failed: {reason} mechanism={self._mechanism} "
            f"name={name[:NAME_CHARACTERS_MAX]!r}"
        )

    @property
    def _kind(self) -> str:
        return "re-authentication" if self.is_proved else "authentication"

    def _failed(self, mechanism: str, reason: str) -> None:
        self.stage = Stage.FAILED
        self._exchange = None
        self._note_failure(mechanism, reason)

    def _note_failure(self, mechanism: str, reason: str) -> None:
        if self._is_noted:
            return
        self._is_noted = True
        self._terms.counts[self._terms.listener, mechanism, "failure"] += 1
        self.on_failure(reason)


def _may_log_in(name: str) -> bool:
    """Whether a name stands for one user: ``*`` is every user in a rule of access."""
    return name != _WILDCARD and name.isprintable() and 0 < len(name) <= NAME_CHARACTERS_MAX


def _nothing() -> None:
    """Nobody wants to hear of it."""


def _nothing_of(_: str) -> None:
    """Nobody wants to hear of it."""
