"""One connection of a load generator that calls and waits; transactions are made over it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from typing import Self

from barnabas.console.development.ports import LOOPBACK
from benchmarks import frames


class WrongAnswer(Exception):  # noqa: N818 - says what happened
    """An answer was not the expected one."""


class Link:
    """A connection to a port of the loopback; use it in an ``async with``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._correlation = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(LOOPBACK, self._port)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, frame: bytes) -> bytes:
        """The answer without its length. Calls are made one after the other."""
        self.send(frame)
        return await self.receive()

    def send(self, frame: bytes) -> None:
        """Send without waiting; answers come in this order."""
        self._correlation += 1
        request = bytearray(frame)
        struct.pack_into(">i", request, frames.CORRELATION_AT, self._correlation)
        self._writer.write(request)

    async def receive(self) -> bytes:
        """The next answer, without its length."""
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        return await self._reader.readexactly(size)


async def until(holds: Callable[[], bool], limit_s: float) -> None:
    """Poll a condition of this process; raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the load does not begin")
        await asyncio.sleep(0.005)
