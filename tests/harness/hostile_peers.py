"""Peers that mean harm, by the thousand: cut handshakes, half ones, silent ones, slow ones.

All of it on one loop, in the process of the test; the peers are told apart from the node's other
clients by nothing but what they send. Source: docs/spec/security.md §7 (S75).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .client_hellos import HANDSHAKE, hello, padded, record, records
from .raw_connection import Address

WAIT_S: Final = 60.0
AT_ONCE: Final = 64
RESET: Final = struct.pack("ii", 1, 0)
ENDINGS: Final = ("end", "reset", "noise", "again")
"""What comes behind the cut: the end of the stream, a reset, noise, or all of it once more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One handshake that goes wrong after so many bytes of the client's."""

    kind: str
    at: int
    ending: str


@dataclass(slots=True)
class Found:
    """What became of many peers."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """From the last byte sent to the end of the connection."""


def raise_limit() -> None:
    """As many descriptors as the system grants."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Handshakes:
    """Clients of TLS that can be stopped at any byte."""

    def __init__(self, address: Address, trust: Path, key: Path, chain: Path) -> None:
        self.address = address
        self._contexts: dict[str, ssl.SSLContext] = {}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for shows in (False, True):
                context = ssl.create_default_context(cafile=str(trust))
                context.minimum_version = context.maximum_version = version
                if shows:
                    context.load_cert_chain(chain, key)
                name = f"{version.name}{', certificate' if shows else ''}"
                self._contexts[name] = context

    async def lengths(self) -> dict[str, int]:
        """How many bytes a client sends in each kind of handshake that succeeds."""
        found = {}
        for kind in self._contexts:
            one = _Handshake(self._contexts[kind], self.address)
            await one.run(1 << 20)
            found[kind] = one.sent
            await one.end("reset")
        return found

    async def cuts(self, step: int = 1) -> list[Cut]:
        """Every ``step``-th of all there are."""
        lengths = await self.lengths()
        every = (
            Cut(kind, at, ending)
            for kind, length in lengths.items()
            for at in range(length)
            for ending in ENDINGS
        )
        return list(itertools.islice(every, 0, None, step))

    async def suffer(self, cuts: Iterable[Cut], at_once: int = AT_ONCE) -> Found:
        """Have them all."""
        found, places = Found(), asyncio.Semaphore(at_once)

        async def one(cut: Cut) -> None:
            async with places:
                handshake = _Handshake(self._contexts[cut.kind], self.address)
                await handshake.run(cut.at)
                began = time.monotonic()
                found.outcomes[await handshake.end(cut.ending)] += 1
                found.slowest_s = max(found.slowest_s, time.monotonic() - began)

        await asyncio.gather(*(one(cut) for cut in cuts))
        return found


class _Handshake:
    """One client on a socket."""

    def __init__(self, context: ssl.SSLContext, address: Address) -> None:
        self._address = address
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_hostname=address[0])
        self._link = socket.socket()
        self._link.setblocking(False)
        self._first = b""
        self.sent = 0

    async def run(self, bytes_max: int) -> None:
        """Shake hands until so many bytes are sent, or the server has ended it."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._link, self._address)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while self.sent < bytes_max:
                is_done = self._step()
                mine = self._out.read()[: bytes_max - self.sent]
                self._first = self._first or mine
                await loop.sock_sendall(self._link, mine)
                self.sent += len(mine)
                if is_done or self.sent >= bytes_max:
                    return
                async with asyncio.timeout(WAIT_S):
                    more = await loop.sock_recv(self._link, 1 << 16)
                if not more:
                    return
                self._in.write(more)

    def _step(self) -> bool:
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def end(self, ending: str) -> str:
        """Leave, and say how the other side took it."""
        if ending == "reset":
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._link.close()
            return "reset by us"
        loop = asyncio.get_running_loop()
        more = {"noise": bytes(range(64)), "again": self._first}.get(ending, b"")
        with self._link:
            try:
                await loop.sock_sendall(self._link, more)
                self._link.shutdown(socket.SHUT_WR)
            except OSError:
                return "closed"
            return await _ended(self._link)


async def _ended(link: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(WAIT_S):
            while await loop.sock_recv(link, 1 << 16):
                pass
    except ConnectionError:
        return "closed"
    except TimeoutError:
        return "left open"
    return "closed"


@dataclass(frozen=True, slots=True)
class Idler:
    """What a peer does that never comes to the point."""

    name: str
    first: bytes
    drip: bytes = b""
    """Behind it one byte of this each second."""


SILENT: Final = Idler("silent", b"")
_HELLO: Final = record(HANDSHAKE, hello())
SLOW_TLS: Final = Idler("a byte a second, TLS", b"", _HELLO)
SLOW_LOGIN: Final = Idler(
    "a byte a second, login", b"", b"\0\0\0\x20\0\x11\0\x01\0\0\0\1" + bytes(60)
)
HALF_HANDSHAKE: Final = Idler("half a handshake", _HELLO)
HALF_LONG_HANDSHAKE: Final = Idler(
    "half a handshake of 64 KB", records(HANDSHAKE, padded(65_000))[:-1]
)
HALF_TOKEN: Final = Idler("half a token of 512 KiB", struct.pack(">i", 512 << 10) + bytes(100_000))


@dataclass(slots=True)
class IdlersFound:
    """What became of them."""

    closed: int = 0
    refused: int = 0
    open_at_the_end: int = 0
    last_s: float = 0.0
    """From the last one's accept to the end of the last one."""


class _Idle(asyncio.Protocol):
    def __init__(self, idler: Idler, found: IdlersFound) -> None:
        self._idler = idler
        self._found = found
        self._dripped = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._idler.first:
            transport.write(self._idler.first)

    def drip(self) -> None:
        if self.transport is not None and self._dripped < len(self._idler.drip):
            self.transport.write(self._idler.drip[self._dripped : self._dripped + 1])
            self._dripped += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._found.closed += 1


async def idle(
    address: Address,
    idler: Idler,
    count: int,
    within_s: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> IdlersFound:
    """So many peers of this kind; they stay until they are closed or time is over."""
    loop, found = asyncio.get_running_loop(), IdlersFound()
    places = asyncio.Semaphore(AT_ONCE)
    lanes = [_Idle(idler, found) for _ in range(count)]

    async def connect(lane: _Idle) -> None:
        async with places:
            try:
                await loop.create_connection(lambda: lane, *address)
            except OSError:
                found.refused += 1

    async def drip() -> None:
        while True:
            await asyncio.sleep(1)
            for lane in lanes:
                lane.drip()

    dripping = asyncio.create_task(drip())
    await asyncio.gather(*map(connect, lanes))
    began = time.monotonic()
    while found.closed + found.refused < count and time.monotonic() - began < within_s:
        await asyncio.sleep(0.1)
        meanwhile()
    found.last_s = time.monotonic() - began
    dripping.cancel()
    for lane in lanes:
        if lane.transport is not None:
            found.open_at_the_end += 1
            lane.transport.abort()
    return found


async def sessions(address: Address, context: ssl.SSLContext, count: int) -> int:
    """Open so many sessions of TLS, as fast as they are let in; how many there were at once."""
    loop, places = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)

    async def connect() -> asyncio.BaseTransport:
        async with places:
            transport, _ = await loop.create_connection(
                asyncio.Protocol, *address, ssl=context, server_hostname=address[0]
            )
        return transport

    opened = await asyncio.gather(*(connect() for _ in range(count)))
    found = sum(not one.is_closing() for one in opened)
    for one in opened:
        one.abort()  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    return found


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
