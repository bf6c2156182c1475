"""A client for tests of the network: real sockets, frames written by hand."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Any

from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.frame import parse_response_header, request_frame

LENGTH = Struct(">i")


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until ``condition`` holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


class RawClient:
    """One connection; requests are numbered from 0."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._next = 0
        self._sent: dict[int, tuple[api.ApiSpec, int]] = {}

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    def frame(self, message: Any, version: int, client_id: str | None = "test") -> bytes:
        spec = api.spec_of(type(message))
        correlation_id, self._next = self._next, self._next + 1
        self._sent[correlation_id] = (spec, version)
        return request_frame(spec.key, version, correlation_id, client_id, encode(message, version))

    def send(self, *messages: tuple[Any, int]) -> None:
        """Write requests in one piece."""
        self.writer.write(b"".join(self.frame(message, version) for message, version in messages))

    async def frame_in(self) -> bytes:
        """The next frame without its length; raises IncompleteReadError at the end."""
        length = LENGTH.unpack(await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(length)

    async def receive(self) -> tuple[int, Any]:
        """The next answer, and the number of the request it belongs to."""
        frame = await self.frame_in()
        spec, version = self._sent[LENGTH.unpack_from(frame)[0]]
        header_version = api.response_header_version(spec.key, version)
        correlation_id, start = parse_response_header(frame, header_version)
        return correlation_id, decode(spec.response, version, frame, start)

    async def ask(self, message: Any, version: int) -> Any:
        """One request and its answer."""
        self.send((message, version))
        return (await self.receive())[1]

    async def is_closed(self) -> bool:
        """Wait until the other side closes; False when it says something instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return
