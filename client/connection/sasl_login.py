"""What a client proves to a broker, and by which SASL mechanism.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM); docs/spec/security.md §2 and §6 (S71).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self

from barnabas.client.bearer_tokens import TokenProvider, token_from
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import AuthenticationFailed
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.oauthbearer import ACKNOWLEDGED, OAuthBearerError, first_message
from barnabas.protocol.oauthbearer import MECHANISM as OAUTHBEARER
from barnabas.protocol.scram import (
    MECHANISMS,
    NONCE_BYTES,
    ClientExchange,
    Salting,
    ScramError,
    ScramMechanism,
    salted_password,
)

PLAIN: Final = "PLAIN"
CLIENT_MECHANISMS: Final = (PLAIN, *MECHANISMS)
"""What a client can prove a password by; a token is sent by OAUTHBEARER."""
RETRY_S: Final = 600.0
"""A broker that did not offer the first mechanism is asked for it again after so long."""

SendToken = Callable[[bytes], Awaitable[bytes]]
"""Sends a token, and returns the one that comes back; raises AuthenticationFailed."""


class SaslLogin:
    """A name and a password; the first of ``mechanisms`` that a broker offers is used.

    Salted passwords are kept: to derive one takes milliseconds, and each connection needs it. So is
    what each broker offered: whoever was seen to offer the first mechanism is never given the
    password by a lesser one, or a stranger in its place could ask for it in clear.
    """

    def __init__(
        self,
        username: str,
        password: str,
        mechanisms: Sequence[str] = (PLAIN,),
        extensions: Mapping[str, str] | None = None,
        *,
        token_provider: TokenProvider | None = None,
    ) -> None:
        """``token_provider`` gives what OAUTHBEARER sends, and is not needed by the others."""
        assert mechanisms, "one at least"
        self.username = username
        self.mechanisms = tuple(mechanisms)
        self._password = password
        self._extensions = extensions
        self._token_provider = token_provider
        self._salted: dict[tuple[str, Salting], bytes] = {}
        self._offered_first: set[str] = set()
        """Addresses."""
        self._lesser: dict[str, tuple[str, float]] = {}
        """By address, the mechanism that is used instead of the first, and until when."""

    @classmethod
    def of(cls, config: ClientConfig) -> Self | None:
        """What the settings ask for; raises ConfigError for half of a login."""
        provider = config.token_provider
        if provider is not None:
            return cls("", "", (OAUTHBEARER,), token_provider=provider)
        found = config.credentials
        if found is None:
            return None
        return cls(found.username, found.password, (found.mechanism,), found.extensions)

    def __repr__(self) -> str:
        """Without the password."""
        return f"SaslLogin({self.username!r}, [hidden], {self.mechanisms})"

    def remember(self, mechanism: str, salting: Salting, salted: bytes) -> None:
        """Keep a salted password; of each mechanism only the last, and those of other brokers go.

        Else a broker that names another salt each time would fill the memory.
        """
        self._salted = {key: kept for key, kept in self._salted.items() if key[0] != mechanism}
        self._salted[mechanism, salting] = salted

    def choice(self, peer: str, now: float) -> str:
        """The mechanism to begin with at an address; ``now`` is a monotonic clock in seconds."""
        lesser, until = self._lesser.get(peer, ("", now))
        return lesser if now < until else self.mechanisms[0]

    def other_choice(self, peer: str, refused: str, offered: Sequence[str], now: float) -> str:
        """What to try when a mechanism was ``refused``; empty where nothing is left."""
        if peer in self._offered_first:
            return ""
        left = self.mechanisms[self.mechanisms.index(refused) + 1 :]
        other = next((mechanism for mechanism in left if mechanism in offered), "")
        if other:
            self._lesser[peer] = other, now + RETRY_S
        return other

    async def prove(self, peer: str, mechanism: str, send: SendToken) -> None:
        """Log in by ``mechanism``, which the broker accepted; raises AuthenticationFailed."""
        if mechanism == self.mechanisms[0]:
            self._offered_first.add(peer)
            self._lesser.pop(peer, None)
        if mechanism == OAUTHBEARER:
            await self._prove_by_token(peer, send)
            return
        if mechanism == PLAIN:
            await send(f"\0{self.username}\0{self._password}".encode())
            return
        exchange = ClientExchange(
            MECHANISMS[mechanism],
            self.username,
            secrets.token_bytes(NONCE_BYTES),
            self._extensions,
        )
        try:
            salting = exchange.salting(await send(exchange.first()))
            salted = await self._salted_password(MECHANISMS[mechanism], salting)
            exchange.verify(await send(exchange.final(salted)))
        except ScramError as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            raise AuthenticationFailed(code, f"{peer}: {error}") from None

    async def _prove_by_token(self, peer: str, send: SendToken) -> None:
        assert self._token_provider is not None, "one is given where the mechanism is"
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        try:
            message = first_message(await token_from(self._token_provider))
        except OAuthBearerError as error:
            raise AuthenticationFailed(code, f"the token provider gave no token: {error}") from None
        except Exception as error:
            reason = f"the token provider failed: {type(error).__name__}"
            raise AuthenticationFailed(code, reason) from error
        answer = await send(message)
        if answer:  # why the token is no good; to say that it was read ends the login
            await send(ACKNOWLEDGED)
            raise AuthenticationFailed(code, f"{peer} refuses the token")

    async def _salted_password(self, mechanism: ScramMechanism, salting: Salting) -> bytes:
        salted = self._salted.get((mechanism.name, salting))
        if salted is None:
            salted = await asyncio.get_running_loop().run_in_executor(
                None, salted_password, mechanism, self._password, *salting
            )
            self.remember(mechanism.name, salting, salted)
        return salted
