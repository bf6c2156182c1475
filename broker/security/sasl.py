"""SASL/PLAIN on a listener that asks for it: one peer's way from stranger to principal.

Source: RFC 4616; KIP-43 (handshake v0, bare tokens), KIP-152 (v1, SaslAuthenticate);
docs/spec/reliability.md §8.2 (identity confusion, timing).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from enum import Enum

from barnabas.protocol.errors import ErrorCode, Refused

MECHANISMS = ("PLAIN",)
ANONYMOUS = "User:ANONYMOUS"


class Stage(Enum):
    """What a peer may do next."""

    HANDSHAKE = "choose a mechanism"
    TOKEN = "send a token inside SaslAuthenticate"  # noqa: S105 - a stage, not a secret
    BARE_TOKEN = "send a token alone in a frame"  # noqa: S105
    DONE = "ask for anything"
    FAILED = "go away"


class PlainExchange:
    """The proof one connection gives of who it is; passwords by user name."""

    __slots__ = ("_passwords", "principal", "stage")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.stage = Stage.HANDSHAKE
        self.principal = ANONYMOUS

    def choose(self, mechanism: str, handshake_version: int) -> None:
        """Start the exchange; raises Refused (33 or 34) for what cannot be started."""
        if self.stage is not Stage.HANDSHAKE:
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, f"expected to {self.stage.value}")
        if mechanism not in MECHANISMS:
            self.stage = Stage.FAILED
            raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"only {', '.join(MECHANISMS)}")
        self.stage = Stage.TOKEN if handshake_version else Stage.BARE_TOKEN

    def authenticate(self, token: bytes) -> None:
        """Check ``[authzid] NUL authcid NUL password``; sets the principal or raises Refused."""
        if self.stage not in (Stage.TOKEN, Stage.BARE_TOKEN):
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, f"expected to {self.stage.value}")
        self.stage = Stage.FAILED
        name = self._proven_name(bytes(token))
        if name is None:
            raise Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong name or password")
        self.principal = f"User:{name}"
        self.stage = Stage.DONE

    def _proven_name(self, token: bytes) -> str | None:
        parts = token.split(b"\0")
        if len(parts) != 3:
            return None
        acts_as, claimed, password = parts
        try:
            name = claimed.decode()
        except UnicodeDecodeError:
            return None
        expected = self._passwords.get(name, "").encode()
        is_right = hmac.compare_digest(expected, password) and bool(expected)
        return name if is_right and acts_as in (b"", claimed) else None
