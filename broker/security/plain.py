"""The server's side of PLAIN: one message with name and password.

    [authorization id] NUL name NUL password

Source: RFC 4616; docs/spec/security.md §2 (S26, S28).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from barnabas.broker.settings.password_hash import SCRYPT, PasswordHash

from .exchange import AuthenticationFailed, Outcome

THREADS: Final = 4
"""Passwords of the ``{scrypt}`` form that are checked at once, on the whole node."""
_WRONG: Final = "Authentication failed: Invalid username or password"
_AUTHZID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class Passwords:
    """Passwords by user name; checking one takes as long for a name that nobody has."""

    def __init__(self, users: Mapping[str, Sequence[str]]) -> None:
        self._users = {
            name: [_readable(password) for password in passwords]
            for name, passwords in users.items()
        }
        hashes = [
            one for many in self._users.values() for one in many if isinstance(one, PasswordHash)
        ]
        self._decoy = hashes[0] if hashes else None
        self._key = os.urandom(32)
        self._pool = ThreadPoolExecutor(THREADS, "password") if hashes else None

    def check(self, name: str, password: bytes) -> bool | Awaitable[bool]:
        """Whether the password is right; awaitable where that takes long."""
        if self._pool is None:
            return self._matches(name, password)
        return asyncio.get_running_loop().run_in_executor(self._pool, self._matches, name, password)

    def close(self) -> None:
        """Give the threads back."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _matches(self, name: str, password: bytes) -> bool:
        known = self._users.get(name, ())
        is_right = False
        did_hash = False
        given = self._digest(password)
        for one in known:
            if isinstance(one, PasswordHash):
                did_hash = True
                is_right |= hmac.compare_digest(one.digest_of(password), one.hash)
            else:
                is_right |= hmac.compare_digest(self._digest(one), given)
        if self._decoy is not None and not did_hash:
            self._decoy.digest_of(password)
        if not known:
            hmac.compare_digest(self._digest(b""), given)
        return is_right

    def _digest(self, password: bytes) -> bytes:
        # Of one length whatever is compared: compare_digest tells at once that lengths differ.
        return hashlib.blake2b(password, key=self._key).digest()


def _readable(password: str) -> PasswordHash | bytes:
    return PasswordHash.read(password) if password.startswith(SCRYPT) else password.encode()


class PlainExchange:
    """One peer's login."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        """Check the message; raises AuthenticationFailed."""
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        acts_as, claimed, password = parts
        if not claimed:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        try:
            name = claimed.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed(_WRONG) from None
        is_other = acts_as not in (b"", claimed)
        verdict = self._passwords.check(name, password)
        if isinstance(verdict, bool):
            return _outcome(name, is_right=verdict, is_other=is_other)
        return _later(name, verdict, is_other=is_other)


async def _later(name: str, verdict: Awaitable[bool], *, is_other: bool) -> Outcome:
    return _outcome(name, is_right=await verdict, is_other=is_other)


def _outcome(name: str, *, is_right: bool, is_other: bool) -> Outcome:
    # The authorization id is judged last: its sentence would tell that the name exists.
    if not is_right:
        raise AuthenticationFailed(_WRONG, name)
    if is_other:
        raise AuthenticationFailed(_AUTHZID, name)
    return Outcome(name=name)
