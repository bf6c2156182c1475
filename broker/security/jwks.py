"""The public keys of whoever signs tokens (JWKS): read from a URL or a file, and read again.

A key that nobody knows has the set read again, at most every ten seconds: a stranger must not make
the node ask as often as he likes. Source: docs/spec/security.md §2 (S36); RFC 7517.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, Final

from barnabas.broker.settings.oauthbearer_settings import OAuthBearerSettings, file_of
from barnabas.client.http_answers import opened
from barnabas.client.tls.contexts import https_context

log = logging.getLogger(__name__)

BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 1000
UNKNOWN_KEY_S: Final = 10.0
"""An unknown key has the set read again so often at most."""
READ_S: Final = 5.0
"""For a silence of the server; all of it may take three times as long."""
_CHUNK: Final = 1 << 16

Jwk = Mapping[str, Any]
"""One key as it stands in the set."""


class KeysUnreadable(Exception):  # noqa: N818 - says what happened
    """The keys cannot be read now; the text says why."""


def read_keys(url: str) -> list[Jwk]:
    """The keys that stand at a URL; takes time. Raises KeysUnreadable."""
    path = file_of(url)
    try:
        data = _read_file(path) if path is not None else _read_https(url)
    except (OSError, HTTPException, ValueError) as error:
        raise KeysUnreadable(_reason(error)) from None
    if len(data) > BYTES_MAX:
        raise KeysUnreadable(f"more than {BYTES_MAX} bytes")
    return _keys_in(data)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _keys_in(data: bytes) -> list[Jwk]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise KeysUnreadable("not JSON") from None
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise KeysUnreadable('no "keys"')
    if len(found) > KEYS_MAX:
        raise KeysUnreadable(f"more than {KEYS_MAX} keys")
    keys: list[Jwk] = [
        key for key in found if isinstance(key, dict) and key.get("use", "sig") == "sig"
    ]
    if not keys:
        raise KeysUnreadable("no key for signatures")
    return keys


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(BYTES_MAX + 1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers for the URL answers himself: another host is asked by nobody."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """None: the answer is an error."""


def _read_https(url: str) -> bytes:
    """The system's authorities judge the server, or those of SSL_CERT_FILE."""
    https = urllib.request.HTTPSHandler(context=https_context())
    opener = urllib.request.build_opener(_NoRedirect, https)
    ends_at = time.monotonic() + 3 * READ_S
    data = bytearray()
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    with opened(opener, request, READ_S) as answer:
        while len(data) <= BYTES_MAX and (some := answer.read1(_CHUNK)):
            data += some
            if time.monotonic() > ends_at:
                raise TimeoutError("the server is too slow")
    return bytes(data)


class KeySet:
    """The keys of one URL; use from one loop only."""

    def __init__(self, settings: OAuthBearerSettings, now: Callable[[], float]) -> None:
        """``now`` is a clock in seconds that never goes back."""
        assert settings.jwks_url is not None, "the settings were judged"
        self.url = settings.jwks_url
        self._settings = settings
        self._now = now
        self._keys: list[Jwk] = []
        self._tried_at = float("-inf")
        self._failures = 0
        self._reading: asyncio.Task[None] | None = None

    @property
    def due_at(self) -> float:
        """When the keys are to be read again, on the clock ``now``."""
        if not self._failures:
            return self._tried_at + self._settings.refresh_ms / 1000
        doubled: int = self._settings.retry_ms << min(self._failures - 1, 30)
        return self._tried_at + min(doubled, self._settings.retry_ms_max) / 1000

    def find(self, kid: str | None, kinds: str) -> Jwk | None:
        """A key by its id, or without one the only key of a kind (``RSA`` or ``EC``)."""
        if kid is not None:
            return next((key for key in self._keys if key.get("kid") == kid), None)
        fitting = [key for key in self._keys if key.get("kty") == kinds]
        return fitting[0] if len(fitting) == 1 else None

    def may_ask_again(self) -> bool:
        """Whether an unknown key is worth a look: the last one was long ago, or is under way."""
        is_reading = self._reading is not None and not self._reading.done()
        return is_reading or self._now() - self._tried_at >= UNKNOWN_KEY_S

    async def refresh(self) -> None:
        """Read the keys; who comes while that is under way waits for it. Failures are logged."""
        if self._reading is None or self._reading.done():
            self._tried_at = self._now()
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def stop(self) -> None:
        """Give up a reading that is under way; who waits for it is cancelled, too."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            keys = await loop.run_in_executor(None, read_keys, self.url)
        except KeysUnreadable as error:
            self._failures += 1
            log.warning("could not read the keys of tokens url=%s: %s", self.url, error)
            return
        if self._failures or not self._keys:
            log.info("knows the keys of tokens url=%s keys=%d", self.url, len(keys))
        self._keys, self._failures = keys, 0


class KeySets:
    """The keys of all listeners, read while the node runs."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._sets: dict[tuple[str, int], KeySet] = {}
        self._added = asyncio.Event()

    def of(self, settings: OAuthBearerSettings) -> KeySet:
        """Those of one listener; shared by all that are told the same."""
        key = (settings.jwks_url or "", settings.refresh_ms)
        if key not in self._sets:
            self._sets[key] = KeySet(settings, self._now)
            self._added.set()
        return self._sets[key]

    async def run(self) -> None:
        """Read all keys when they are due, until cancelled; then nothing is read any more."""
        try:
            while True:
                await self._read_what_is_due()
        finally:
            for one in self._sets.values():
                await one.stop()

    async def _read_what_is_due(self) -> None:
        self._added.clear()
        for one in list(self._sets.values()):
            if one.due_at <= self._now():
                await one.refresh()
        due_at = min((one.due_at for one in self._sets.values()), default=float("inf"))
        await self._wait(due_at - self._now())

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(None if seconds == float("inf") else max(0.0, seconds)):
                await self._added.wait()
        except TimeoutError:
            pass
