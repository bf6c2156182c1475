"""The server's side of SCRAM: who is asked for which proof, and whether it was right.

Source: docs/spec/security.md §2 (S29 to S31); the messages are in protocol/scram.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

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

FindCredentials = Callable[[ScramMechanism, str], Sequence[ScramCredential]]
"""What a name may be proved by; several share salt and iterations."""


class ScramExchange:
    """One peer's login.

    A name that nobody has is challenged like any other, and fails where a wrong password does.
    """

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredentials, decoy_secret: bytes
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._decoy_secret = decoy_secret
        self._exchange = ServerExchange(mechanism)
        self._is_begun = False
        self._is_known = False

    def evaluate(self, token: bytes) -> Outcome:
        """Take the first or the last message; raises AuthenticationFailed."""
        exchange = self._exchange
        try:
            if not self._is_begun:
                self._is_begun = True
                exchange.begin(token)
                return Outcome(exchange.challenge(self._credentials(), _nonce()))
            signature = exchange.finish(token)
        except ScramError as error:
            raise AuthenticationFailed(name=exchange.name, reason=str(error)) from None
        if not self._is_known:
            raise AuthenticationFailed(name=exchange.name, reason="unknown user")
        return Outcome(signature, exchange.name)

    def _credentials(self) -> Sequence[ScramCredential]:
        found = self._find(self._mechanism, self._exchange.name)
        # A credential of fewer iterations is as good as none: whoever heard its login could guess
        # the password.
        self._is_known = bool(found) and found[0].iterations >= ITERATIONS_MIN
        if self._is_known:
            return found
        return [decoy(self._mechanism, self._decoy_secret, self._exchange.name)]


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)
