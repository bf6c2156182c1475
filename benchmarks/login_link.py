"""Connections of a load generator that speak TLS, log in by PLAIN, or both.

Source: KIP-43 (SaslHandshake v1), KIP-152 (SaslAuthenticate v0); bytes written by hand.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from barnabas.console.development.ports import LOOPBACK
from benchmarks.frames import plain, text

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_CODE_AT: Final = 8


@dataclass(frozen=True, slots=True)
class Security:
    """How a client of a benchmark connects; empty is in clear, as nobody."""

    trust: str = ""
    """A file of PEM; not empty: TLS."""
    user: str = ""
    password: str = ""

    def librdkafka(self) -> dict[str, str]:
        """The same for confluent-kafka."""
        protocol = ("SASL_" if self.user else "") + ("SSL" if self.trust else "PLAINTEXT")
        settings = {"security.protocol": protocol}
        if self.trust:
            settings["ssl.ca.location"] = self.trust
        if self.user:
            settings |= {
                "sasl.mechanisms": "PLAIN",
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return settings


class _Login(asyncio.Protocol):
    """Logs in, then lets another protocol have the connection."""

    def __init__(self, security: Security, then: asyncio.Protocol) -> None:
        self._security = security
        self._then = then
        self._received = b""
        self._has_chosen = False
        self._transport: asyncio.Transport
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(plain(SASL_HANDSHAKE, 1, text("PLAIN")))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 + int.from_bytes(self._received[:4]):
            return
        code = int.from_bytes(self._received[_CODE_AT : _CODE_AT + 2])
        self._received = b""
        if code:
            self.done.set_exception(PermissionError(f"the login was answered {code}"))
        elif self._has_chosen:
            self._transport.set_protocol(self._then)
            self._then.connection_made(self._transport)
            self.done.set_result(None)
        else:
            self._has_chosen = True
            token = f"\0{self._security.user}\0{self._security.password}".encode()
            body = struct.pack(">i", len(token)) + token
            self._transport.write(plain(SASL_AUTHENTICATE, 0, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed while it logged in"))


async def connect(
    make: Callable[[], asyncio.Protocol], port: int, security: Security = Security()
) -> None:
    """Have ``make`` 's protocol on a connection that is let in."""
    context = ssl.create_default_context(cafile=security.trust) if security.trust else None
    loop = asyncio.get_running_loop()
    if not security.user:
        await loop.create_connection(make, LOOPBACK, port, ssl=context)
        return
    login = _Login(security, make())
    await loop.create_connection(lambda: login, LOOPBACK, port, ssl=context)
    await login.done
