"""Passwords that a file holds as ``{scrypt}n$r$p$salt$hash`` instead of in clear.

    n, r, p   the cost: 128*n*r bytes of memory, p times over
    salt      base64
    hash      base64, 32 bytes

Source: docs/spec/security.md §2 (S28); RFC 7914.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Final, Self

SCRYPT: Final = "{scrypt}"
MEMORY_BYTES_MAX: Final = 64 << 20
"""What checking one password may take; four may be checked at once."""
_HASH_BYTES: Final = 32
_COST: Final = (1 << 14, 8, 1)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A password that can be checked and not read."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def __repr__(self) -> str:
        """Never the hash: weak passwords could be guessed by it."""
        return "[hidden]"

    def __str__(self) -> str:
        """As it stands in a file."""
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.hash))
        return f"{SCRYPT}{self.n}${self.r}${self.p}${salt}${digest}"

    @classmethod
    def of(cls, password: str, salt: bytes) -> Self:
        """A new one, of the usual cost."""
        return cls(*_COST, salt, _scrypt(password.encode(), salt, *_COST))

    @classmethod
    def read(cls, text: str) -> Self:
        """Read ``{scrypt}...``; raises ValueError that repeats nothing of it."""
        words = text.removeprefix(SCRYPT).split("$")
        if not text.startswith(SCRYPT) or len(words) != 5:
            raise ValueError(f"must read {SCRYPT}n$r$p$salt$hash")
        try:
            n, r, p = (int(word) for word in words[:3])
            salt, digest = (base64.b64decode(word, validate=True) for word in words[3:])
        except ValueError:
            raise ValueError("must hold three numbers and base64 of salt and hash") from None
        if n < 2 or n & (n - 1) or r < 1 or not 1 <= p <= 16 or 128 * n * r > MEMORY_BYTES_MAX:
            raise ValueError(f"must cost at most {MEMORY_BYTES_MAX >> 20} MiB; n is a power of 2")
        if not salt or len(digest) != _HASH_BYTES:
            raise ValueError(f"must hold a salt, and a hash of {_HASH_BYTES} bytes")
        return cls(n, r, p, salt, digest)

    def digest_of(self, password: bytes) -> bytes:
        """What is to be compared with the hash; slow on purpose, not for a turn of the loop."""
        return _scrypt(password, self.salt, self.n, self.r, self.p)


def password_problem(user: str, password: str) -> str | None:
    """Why a user cannot come in with this password; None where he can. Repeats no password."""
    if not user:
        return "names nobody"
    if not password:
        return "has no password"
    if password.startswith(SCRYPT):
        try:
            PasswordHash.read(password)
        except ValueError as error:
            return str(error)
    return None


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=n, r=r, p=p, maxmem=2 * MEMORY_BYTES_MAX, dklen=_HASH_BYTES
    )
