"""What a bearer token proves: signed ones by a key of their issuer, unsigned ones on the loopback.

Source: docs/spec/security.md §2 (S36); RFC 7519, RFC 8725; KIP-768.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

from barnabas.broker.settings.oauthbearer_settings import OAuthBearerSettings

from .jwks import Jwk, KeySet

RSA_BITS: Final = range(2048, 8193)
"""Of keys that are believed; checking by a longer one takes too long."""
LIFETIME_MS_MAX: Final = 10 * 365 * 86_400_000
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")
"""The parts of a key that are no secret; nothing else of it is looked at."""
_CURVES: Final[Mapping[str, str]] = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


class TokenRefused(Exception):  # noqa: N818 - says what happened
    """A token that proves nothing; the text is for the log, and never repeats any of it."""


@dataclass(frozen=True, slots=True)
class Proved:
    """Whom a token is about, and for how many milliseconds it goes on to say so."""

    name: str
    lifetime_ms: int


class Tokens(Protocol):
    """Judges the tokens of one listener."""

    def check(self, token: str) -> Proved | Awaitable[Proved]:
        """Raises TokenRefused, at once or when awaited."""


def tokens_of(
    settings: OAuthBearerSettings, keys: KeySet | None, now_ms: Callable[[], int]
) -> Tokens:
    """The judge that the settings ask for; ``now_ms`` is the wall clock."""
    if keys is None:
        assert settings.is_unsecured, "the settings were judged"
        return UnsecuredTokens(settings, now_ms)
    return SignedTokens(settings, keys, now_ms)


class UnsecuredTokens:
    """Believes whatever a token says that is not signed: for development alone."""

    def __init__(self, settings: OAuthBearerSettings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms

    def check(self, token: str) -> Proved:
        """Only ``alg`` none, with ``exp`` and a name; raises TokenRefused."""
        header, claims, signature = _parts(token)
        if header.get("alg") != "none" or signature:
            raise TokenRefused("a signature, where none is checked")
        return _proved(self._settings, claims, self._now_ms())


class SignedTokens:
    """Believes what a known key of the issuer has signed, for this audience."""

    def __init__(
        self, settings: OAuthBearerSettings, keys: KeySet, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._now_ms = now_ms

    @cached_property
    def _jwt(self) -> Any:
        """PyJWT, an extra of ours: the settings made sure that it is there."""
        import jwt

        return jwt

    def check(self, token: str) -> Proved | Awaitable[Proved]:
        """Raises TokenRefused; awaitable where the keys have to be read again first."""
        header, _, _ = _parts(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise TokenRefused("an algorithm that is not allowed")
        if kid is not None and not isinstance(kid, str):
            raise TokenRefused("a key id that is no text")
        key = self._keys.find(kid, _kind(algorithm))
        if key is not None:
            return self._judged(token, algorithm, key)
        if not self._keys.may_ask_again():
            raise TokenRefused("a key that nobody knows")
        return self._judged_later(token, algorithm, kid)

    async def _judged_later(self, token: str, algorithm: str, kid: str | None) -> Proved:
        await self._keys.refresh()
        key = self._keys.find(kid, _kind(algorithm))
        if key is None:
            raise TokenRefused("a key that nobody knows")
        return self._judged(token, algorithm, key)

    def _judged(self, token: str, algorithm: str, key: Jwk) -> Proved:
        jwt, settings = self._jwt, self._settings
        try:
            claims = jwt.decode(
                token,
                self._key(key, algorithm),
                algorithms=[algorithm],
                audience=settings.audience,
                issuer=settings.issuer,
                options={
                    "require": ["exp", "iat", "aud", "iss"],
                    # Times are judged here, by the node's own clock.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(type(error).__name__) from None
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise TokenRefused(f"cannot be read: {type(error).__name__}") from None
        return _proved(settings, claims, self._now_ms(), must_be_issued=True)

    def _key(self, key: Jwk, algorithm: str) -> Any:
        """The key for this algorithm and no other, whatever the token says of itself."""
        if key.get("kty") != _kind(algorithm) or key.get("alg", algorithm) != algorithm:
            raise TokenRefused("an algorithm that is not that of the key")
        if algorithm in _CURVES and key.get("crv") != _CURVES[algorithm]:
            raise TokenRefused("an algorithm that is not that of the curve")
        public = {name: key[name] for name in _PUBLIC if name in key}
        found = self._jwt.PyJWK(public, algorithm)
        if algorithm not in _CURVES and found.key.key_size not in RSA_BITS:
            raise TokenRefused(f"a key of {found.key.key_size} bits")
        return found


def _kind(algorithm: str) -> str:
    return "EC" if algorithm in _CURVES else "RSA"


def _proved(
    settings: OAuthBearerSettings,
    claims: Mapping[str, Any],
    now_ms: int,
    *,
    must_be_issued: bool = False,
) -> Proved:
    """Whom the claims are about; raises TokenRefused for what lacks a claim or is out of time."""
    skew_ms = settings.clock_skew_s * 1000
    ends_ms = _time_ms(claims, "exp")
    if ends_ms is None:
        raise TokenRefused("no exp")
    issued_ms, begins_ms = _time_ms(claims, "iat"), _time_ms(claims, "nbf")
    if issued_ms is None and must_be_issued:
        raise TokenRefused("no iat")
    if now_ms >= ends_ms + skew_ms:
        raise TokenRefused("it has expired")
    if any(
        time_ms is not None and time_ms > now_ms + skew_ms for time_ms in (issued_ms, begins_ms)
    ):
        raise TokenRefused("it is of the future")
    name = claims.get(settings.sub_claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"no {settings.sub_claim}")
    _check_scope(claims.get(settings.scope_claim))
    left_ms = ends_ms - now_ms
    # Taken for the sake of clocks that differ: for as long as they may.
    left_ms = left_ms if left_ms > 0 else left_ms + skew_ms
    return Proved(name, int(min(left_ms, LIFETIME_MS_MAX)))


def _check_scope(scope: Any) -> None:
    words = scope if isinstance(scope, list) else [scope]
    if scope is not None and not all(isinstance(word, str) for word in words):
        raise TokenRefused("a scope that is no text")


def _time_ms(claims: Mapping[str, Any], name: str) -> float | None:
    """A NumericDate in milliseconds; raises TokenRefused for what is no time."""
    found = claims.get(name)
    if found is None:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not -1e12 < found < 1e12:  # NaN is in no range
        raise TokenRefused(f"{name} is no time")
    return float(found) * 1000


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Header, claims and signature, nothing of which is proved; raises TokenRefused."""
    words = token.split(".")
    if len(words) != 3:
        raise TokenRefused("not three parts")
    return _object(words[0]), _object(words[1]), _bytes(words[2])


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(text))
    except (ValueError, RecursionError):
        raise TokenRefused("not JSON") from None
    if not isinstance(found, dict):
        raise TokenRefused("no JSON object")
    return found


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        raise TokenRefused("not base64url") from None
