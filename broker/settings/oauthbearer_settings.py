"""Settings of OAUTHBEARER: whose tokens are believed, and what has to stand in them.

Source: docs/spec/security.md §2 (S35, S36); Kafka 3.9 SaslConfigs; KIP-768.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from barnabas.protocol.settings import setting

from .endpoints import Endpoint, is_loopback

PREFIX: Final = "sasl.oauthbearer."
URL: Final = f"{PREFIX}jwks.endpoint.url"
AUDIENCE: Final = f"{PREFIX}expected.audience"
ISSUER: Final = f"{PREFIX}expected.issuer"
UNSECURED: Final = f"{PREFIX}unsecured.enable"
ALGORITHMS: Final = tuple(
    f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)
)
"""Of signatures by a key that the node does not have; never ``none``, never HMAC."""
EXTRA: Final = "pip install 'barnabas[oauth]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearerSettings:
    """What one listener believes."""

    jwks_url: str | None = setting(
        URL, None, "https URL or file URL of the keys that tokens are signed with"
    )
    audience: tuple[str, ...] = setting(AUDIENCE, (), "one of these must be in a token's aud")
    issuer: str | None = setting(ISSUER, None, "must be a token's iss")
    sub_claim: str = setting(f"{PREFIX}sub.claim.name", "sub", "claim that names the user")
    scope_claim: str = setting(f"{PREFIX}scope.claim.name", "scope", "claim with the scopes")
    clock_skew_s: int = setting(
        f"{PREFIX}clock.skew.seconds", 30, "by so much clocks may differ", least=0, most=3600
    )
    refresh_ms: int = setting(
        f"{PREFIX}jwks.endpoint.refresh.ms", 3_600_000, "how often keys are read again", least=1000
    )
    retry_ms: int = setting(
        f"{PREFIX}jwks.endpoint.retry.backoff.ms",
        100,
        "keys that could not be read are tried again after so long, doubled each time",
        least=1,
    )
    retry_ms_max: int = setting(
        f"{PREFIX}jwks.endpoint.retry.backoff.max.ms", 10_000, "the longest of these", least=1
    )
    algorithms: tuple[str, ...] = setting(
        f"{PREFIX}algorithms", ALGORITHMS, "by which tokens may be signed", choices=ALGORITHMS
    )
    is_unsecured: bool = setting(
        UNSECURED,
        False,
        "takes tokens that nobody signed: whoever connects is whoever he says; loopback only",
    )


def file_of(url: str) -> str | None:
    """The path that a file URL names; None for any other URL."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def oauthbearer_problems(settings: OAuthBearerSettings, endpoint: Endpoint) -> Iterator[str]:
    """What keeps a listener from taking tokens; each begins with the name of a setting."""
    if settings.is_unsecured:
        if not is_loopback(endpoint.host):
            yield f"{UNSECURED}=true: {endpoint} is reached by other machines"
        if settings.jwks_url:
            yield f"{UNSECURED}=true: contradicts {URL}: tokens would be taken without a signature"
        return
    for name, value, meaning in (
        (URL, settings.jwks_url, "where are the keys?"),
        (AUDIENCE, settings.audience, "a token for another service would let its holder in"),
        (ISSUER, settings.issuer, "tokens of whom?"),
    ):
        if not value:
            yield f"{name}: must be set for OAUTHBEARER: {meaning}"
    if settings.jwks_url:
        yield from _url_problems(settings.jwks_url)
    if not settings.algorithms:
        yield f"{PREFIX}algorithms: must name some of {', '.join(ALGORITHMS)}"
    if importlib.util.find_spec("jwt") is None:
        yield f"sasl.enabled.mechanisms: OAUTHBEARER needs PyJWT: {EXTRA}"
    elif importlib.util.find_spec("cryptography") is None:
        yield f"sasl.enabled.mechanisms: OAUTHBEARER needs cryptography: {EXTRA}"


def _url_problems(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        yield f"{URL}: is no URL"
        return
    if parts.username is not None or parts.password is not None:
        yield f"{URL}: must not hold a password"
    is_file = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
    if not is_file and not (parts.scheme == "https" and parts.hostname):
        yield f"{URL}={url}: must be https://HOST/PATH or file:///PATH"
