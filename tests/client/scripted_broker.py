"""A broker for tests that answers what a test tells it to, over a real socket."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from barnabas.protocol import api
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.frame import RequestHeader, parse_request_header, response_prefix
from barnabas.protocol.messages import api_versions

Answer = Callable[[Any, int], Any]
"""From a request and its version to the response, perhaps awaitable; None keeps silent."""


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ScriptedBroker:
    """Answers by API key; what it has no answer for, it leaves open for ever."""

    answers: Mapping[ApiKey, Answer] = field(default_factory=dict)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    api_versions_max: int = 4
    port: int = 0
    seen: list[tuple[RequestHeader, Any]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    connections: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer_versions(self, version: int) -> bytes:
        is_known = version <= self.api_versions_max
        ranges = {ApiKey.API_VERSIONS: (0, self.api_versions_max), **self.ranges}
        for key in self.answers:
            spec = api.lookup(key)
            assert spec is not None
            ranges.setdefault(ApiKey(key), spec.versions)
        response = api_versions.ApiVersionsResponse(
            error_code=0 if is_known else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in ranges.items()
            ],
        )
        return encode(response, version if is_known else 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the client goes away."""
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                await self.take(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header, start = parse_request_header(frame)
        spec = api.lookup(header.key)
        assert spec is not None
        if header.key == ApiKey.API_VERSIONS:
            body: bytes | None = self.answer_versions(header.version)
        else:
            request = decode(spec.request, header.version, frame, start)
            self.seen.append((header, request))
            self.arrived.set()
            answer = self.answers.get(ApiKey(header.key))
            response = None if answer is None else answer(request, header.version)
            if inspect.isawaitable(response):
                response = await response
            body = None if response is None else encode(response, header.version)
        if body is not None:
            tags = api.response_header_version(header.key, header.version)
            writer.write(response_prefix(header.correlation_id, tags, len(body)) + body)


@asynccontextmanager
async def scripted_broker(
    answers: Mapping[ApiKey, Answer] | None = None, **script: Any
) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker(dict(answers or {}), **script)
    async with _listening(broker.serve) as port:
        broker.port = port
        yield broker


@asynccontextmanager
async def speaking(words: bytes) -> AsyncIterator[int]:
    """The port of a server that says ``words`` to whoever says anything, and then listens."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)
        try:
            await reader.read()
        except ConnectionError:
            pass

    async with _listening(speak) as port:
        yield port


@asynccontextmanager
async def _listening(serve: Serve) -> AsyncIterator[int]:
    """Serve until the end, and until the last connection is gone."""
    serving: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except ConnectionError:
                pass

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*serving)
        await server.wait_closed()
