"""The server's side of SCRAM: who is asked for which proof, and whether it was right.

Source: docs/spec/security.md §2 (S29 to S31); the messages are in protocol/scram.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from barnabas.protocol.scram import (
    ITERATIONS_MIN,
    NONCE_BYTES,
    ScramCredential,
    ScramError,
    ScramMechanism,
    ServerExchange,
    decoy,
)

from .exchange import AuthenticationFailed, Outcome
from .token_cache import TokenCache, TokenLogin

FindCredentials = Callable[[ScramMechanism, str], Sequence[ScramCredential]]
"""What a name may be proved by; several share salt and iterations."""
TOKEN: Final = "tokenauth"  # noqa: S105 - the name of an extension
"""Says that the name is the id of a delegation token, and the password its secret."""


class ScramExchange:
    """One peer's login.

    A name that nobody has is challenged like any other, and fails where a wrong password does.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindCredentials,
        decoy_secret: bytes,
        tokens: TokenCache | None = None,
    ) -> None:
        """``tokens`` None: nobody logs in by a delegation token."""
        self._mechanism = mechanism
        self._find = find
        self._decoy_secret = decoy_secret
        self._tokens = tokens
        self._token: TokenLogin | None = None
        self._exchange = ServerExchange(mechanism)
        self._is_begun = False
        self._is_known = False

    def evaluate(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        """Take the first or the last message; raises AuthenticationFailed."""
        exchange = self._exchange
        try:
            if not self._is_begun:
                self._is_begun = True
                exchange.begin(token)
                if exchange.extensions.get(TOKEN, "").lower() == "true":
                    return self._challenge_by_token()
                return Outcome(exchange.challenge(self._credentials(), _nonce()))
            signature = exchange.finish(token)
        except ScramError as error:
            raise AuthenticationFailed(name=exchange.name, reason=str(error)) from None
        if not self._is_known:
            raise AuthenticationFailed(name=exchange.name, reason="unknown user")
        by_token = self._token
        if by_token is None:
            return Outcome(signature, exchange.name)
        if by_token.lifetime_ms <= 0:
            raise AuthenticationFailed(name=exchange.name, reason="the token has ended")
        return Outcome(signature, by_token.owner, by_token.lifetime_ms, is_by_token=True)

    def _challenge_by_token(self) -> Outcome | Awaitable[Outcome]:
        if self._tokens is None:
            return self._challenge_of(None)
        found = self._tokens.login(self._mechanism, self._exchange.name)
        if isinstance(found, TokenLogin | None):
            return self._challenge_of(found)
        return self._challenge_later(found)

    async def _challenge_later(self, found: Awaitable[TokenLogin | None]) -> Outcome:
        return self._challenge_of(await found)

    def _challenge_of(self, found: TokenLogin | None) -> Outcome:
        self._token = found
        self._is_known = found is not None
        made = self._decoy() if found is None else found.credential
        return Outcome(self._exchange.challenge([made], _nonce()))

    def _credentials(self) -> Sequence[ScramCredential]:
        found = self._find(self._mechanism, self._exchange.name)
        # A credential of fewer iterations is as good as none: whoever heard its login could guess
        # the password.
        self._is_known = bool(found) and found[0].iterations >= ITERATIONS_MIN
        if self._is_known:
            return found
        return [self._decoy()]

    def _decoy(self) -> ScramCredential:
        return decoy(self._mechanism, self._decoy_secret, self._exchange.name)


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)
