"""The delegation tokens of the cluster, as this node knows them, and what they log in by.

A token's secret is an HMAC of its id by the key that all nodes share, so it stands nowhere; the
credentials of SCRAM that it stands for are derived in a thread, when somebody first logs in by it.
Without ZooKeeper what is here decides. Source: docs/spec/security.md §2 (S37).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.protocol.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential,
    salt_text,
    salted_password,
)
from barnabas.protocol.zookeeper.token_znodes import TokenRecord

log = logging.getLogger(__name__)

_DIGEST: Final = "sha512"
_SALT_LABEL: Final = b"barnabas salts of delegation tokens\0"
_USER: Final = "User:"


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """The secret of a token, which its holder shows as base64 for a password."""
    return hmac.digest(secret, token_id.encode(), _DIGEST)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token and its secret."""

    record: TokenRecord
    hmac: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """What somebody who logs in by a token has to prove, and who it is then."""

    credential: ScramCredential
    owner: str
    """The name of a user, without its type."""
    lifetime_ms: int
    """For how long the token still holds."""


class TokenCache:
    """Tokens by id and by secret; changes are put in by whoever follows ZooKeeper."""

    def __init__(self, secret: bytes, now_ms: Callable[[], int]) -> None:
        """``now_ms`` is the wall clock: tokens hold by it on every node (S101)."""
        self._secret = secret
        self._now_ms = now_ms
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        self._derived: dict[str, asyncio.Future[Mapping[str, ScramCredential]]] = {}
        """By id, of the tokens that somebody has logged in by."""

    @property
    def tokens(self) -> Collection[DelegationToken]:
        """All that are known, those that have ended among them until they are removed."""
        return self._tokens.values()

    def made_of(self, record: TokenRecord) -> DelegationToken:
        """The token that a record is about."""
        return DelegationToken(record, token_hmac(self._secret, record.token_id))

    def get(self, token_id: str) -> DelegationToken | None:
        """One token by its id."""
        return self._tokens.get(token_id)

    def with_hmac(self, secret: bytes) -> DelegationToken | None:
        """One token by its secret."""
        found = self._tokens.get(self._ids.get(secret, ""))
        if found is None or not hmac.compare_digest(found.hmac, secret):
            return None
        return found

    def put(self, token_id: str, record: TokenRecord | None) -> None:
        """Take over what ZooKeeper has of a token; None: it is gone."""
        known = self._tokens.get(token_id)
        if record is None:
            if known is not None:
                del self._tokens[token_id], self._ids[known.hmac]
                self._derived.pop(token_id, None)
                log.info("forgot a delegation token id=%s", token_id)
            return
        if known is not None and known.record == record:
            return
        token = self._tokens[token_id] = self.made_of(record)
        self._ids[token.hmac] = token_id
        log.info(
            "knows a delegation token id=%s owner=%.255r until_ms=%d",
            *(token_id, record.owner, record.expiry_ms),
        )

    def login(
        self, mechanism: ScramMechanism, token_id: str
    ) -> TokenLogin | Awaitable[TokenLogin | None] | None:
        """What is to be proved by who names this token; None for one that lets nobody in."""
        token = self._tokens.get(token_id)
        # Checked here as well as by who removes them: an hour may lie between.
        if token is None or token.record.has_ended(self._now_ms()):
            return None
        if not token.record.owner.startswith(_USER):
            return None  # the login would be that of a user of the same name
        derived = self._derived.get(token_id)
        if derived is None or _has_failed(derived):
            derived = asyncio.get_running_loop().run_in_executor(None, self._derive, token)
            self._derived[token_id] = derived
        if derived.done():
            return self._login(token, derived.result()[mechanism.name])
        return self._login_later(mechanism, token_id, derived)

    async def _login_later(
        self,
        mechanism: ScramMechanism,
        token_id: str,
        derived: asyncio.Future[Mapping[str, ScramCredential]],
    ) -> TokenLogin | None:
        credentials = await asyncio.shield(derived)
        token = self._tokens.get(token_id)
        return None if token is None else self._login(token, credentials[mechanism.name])

    def _login(self, token: DelegationToken, found: ScramCredential) -> TokenLogin:
        record = token.record
        left_ms = min(record.expiry_ms, record.max_ms) - self._now_ms()
        return TokenLogin(found, record.owner.removeprefix(_USER), left_ms)

    def _derive(self, token: DelegationToken) -> Mapping[str, ScramCredential]:
        """The credentials of both mechanisms, some milliseconds each: in a thread.

        Salts are the same on every node, so that a client may keep what it derives of them.
        """
        password = base64.b64encode(token.hmac).decode()
        made = {}
        for mechanism in MECHANISMS.values():
            named = f"{mechanism.name}\0{token.record.token_id}".encode()
            salt = salt_text(hmac.digest(self._secret, _SALT_LABEL + named, _DIGEST))
            salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
            made[mechanism.name] = credential(mechanism, salted, salt, ITERATIONS_MIN)
        return made


def _has_failed(derived: asyncio.Future[Mapping[str, ScramCredential]]) -> bool:
    return derived.done() and (derived.cancelled() or derived.exception() is not None)
