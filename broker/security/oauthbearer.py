"""The server's side of OAUTHBEARER: one message with a token, and the reason why it is no good.

Source: RFC 7628; docs/spec/security.md §2 (S35, S36); the messages are in protocol/oauthbearer.py.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.protocol.oauthbearer import (
    INVALID_TOKEN,
    FirstMessage,
    OAuthBearerError,
    parse_first_message,
)

from .exchange import AuthenticationFailed, Outcome
from .oauthbearer_tokens import Proved, TokenRefused, Tokens


class OAuthBearerExchange:
    """One peer's login.

    A bad token is answered with a reason in JSON, which is no failure yet: the client says that it
    has read it, and fails then.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._reason = ""
        """Why the token is no good, for the log; empty until it was judged."""

    def evaluate(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        """Take the message with the token, or the acknowledgement; raises AuthenticationFailed."""
        if self._reason:
            raise AuthenticationFailed(INVALID_TOKEN, reason=self._reason)
        try:
            first = parse_first_message(token)
        except OAuthBearerError as error:
            raise AuthenticationFailed(reason=str(error)) from None
        try:
            proved = self._tokens.check(first.token)
        except TokenRefused as refusal:
            return self._refused(refusal)
        return _outcome(first, proved) if isinstance(proved, Proved) else self._later(first, proved)

    async def _later(self, first: FirstMessage, proved: Awaitable[Proved]) -> Outcome:
        try:
            return _outcome(first, await proved)
        except TokenRefused as refusal:
            return self._refused(refusal)

    def _refused(self, refusal: TokenRefused) -> Outcome:
        self._reason = str(refusal) or "refused"
        return Outcome(INVALID_TOKEN.encode(), refusal=self._reason)


def _outcome(first: FirstMessage, proved: Proved) -> Outcome:
    if first.authzid not in ("", proved.name):
        raise AuthenticationFailed(
            f"Authentication failed: Client requested an authorization id ({first.authzid}) that "
            f"is different from the token's principal name ({proved.name})",
            proved.name,
        )
    return Outcome(name=proved.name, lifetime_ms=proved.lifetime_ms)
