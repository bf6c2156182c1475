"""Where a client that logs in by OAUTHBEARER gets its tokens: a callable, a file, or by itself.

Source: docs/spec/security.md §2 (S35); KIP-255, KIP-768.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from barnabas.protocol.settings import ConfigError

TokenProvider = Callable[[], str | Awaitable[str]]
"""Gives the token to log in by, for each login anew. One that is no coroutine runs in a thread."""

URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLAIM: Final = "unsecuredLoginStringClaim_"
_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
_LIFETIME_S: Final = 3600


async def token_from(provider: TokenProvider) -> str:
    """What a provider gives, stripped; raises whatever it raises."""
    if inspect.iscoroutinefunction(provider):
        found: str | Awaitable[str] = await provider()
    else:
        found = await asyncio.get_running_loop().run_in_executor(None, provider)
    return (found if isinstance(found, str) else await found).strip()


def file_provider(url: str) -> TokenProvider:
    """Reads the token from a file, as often as it is needed; raises ConfigError for another URL."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(f"{URL}: must be file:///PATH; give a token provider for anything else")
    return Path(unquote(parts.path)).read_text


def unsecured_provider(options: Mapping[str, str]) -> TokenProvider | None:
    """Makes tokens that nobody signs, as Kafka's OAuthBearerLoginModule does when told claims.

    None where no claim is told. For development: only a node that says so believes them. Raises
    ConfigError.
    """
    claims = {
        name.removeprefix(_CLAIM): value
        for name, value in options.items()
        if name.startswith(_CLAIM)
    }
    if not claims:
        return None
    text = options.get(_LIFETIME, str(_LIFETIME_S))
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"sasl.jaas.config: {_LIFETIME} must be a whole number")
    lifetime_s = int(text)

    def made() -> str:
        now_s = int(time.time())
        times = {"iat": now_s, "exp": now_s + lifetime_s}
        return f"{_encoded({'alg': 'none'})}.{_encoded({**times, **claims})}."

    return made


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
