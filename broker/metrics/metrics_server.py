"""The HTTP listener for metrics: GET /metrics, and nothing else.

A scrape is made in slices, so that no request of a client waits for it; who asks at length, asks
slowly or comes in crowds is sent away. Source: docs/spec/users.md §4 (slices of 2 ms).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from .exposition import CONTENT_TYPE

log = logging.getLogger(__name__)

Render = Callable[[], Iterator[str]]

SLICE_S: Final = 0.002
"""The longest that a scrape keeps the loop to itself."""
SCRAPES_MAX: Final = 4
"""At once."""
HEAD_BYTES_MAX: Final = 8192
REQUEST_TIMEOUT_S: Final = 10.0
"""How long a peer may take to ask, and again to read each part of the answer."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_PATHS: Final = ("/metrics", "/metrics/")


class MetricsServer:
    """Answers scrapes with whatever ``render`` yields, one connection a scrape."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._server: asyncio.Server | None = None
        self._peers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def bind(self, host: str, port: int) -> int:
        """Listen and answer; the port that was bound. Raises OSError naming the setting."""
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"metrics.listener={host}:{port}: {reason}") from error
        self._server = server
        bound: int = server.sockets[0].getsockname()[1]
        log.info("tells metrics host=%s port=%d", host, bound)
        return bound

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        for writer in self._peers.values():
            writer.transport.abort()
        await asyncio.gather(*self._peers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._peers[task] = writer
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError) as error:
            log.debug("metrics were not fetched: %r", error)
        finally:
            del self._peers[task]
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._peers) > SCRAPES_MAX:
            await _send(writer, _refusal(HTTPStatus.SERVICE_UNAVAILABLE))
            return
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(_END_OF_HEAD)
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            await _send(writer, _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            return
        method, path = _request_line(head)
        if method not in ("GET", "HEAD"):
            await _send(writer, _refusal(HTTPStatus.METHOD_NOT_ALLOWED))
        elif path not in _PATHS:
            await _send(writer, _refusal(HTTPStatus.NOT_FOUND))
        else:
            await _send(writer, _head(HTTPStatus.OK))
            if method == "GET":
                await self._write_metrics(writer)

    async def _write_metrics(self, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        part: list[str] = []
        until = clock() + SLICE_S
        for line in self._render():
            part.append(line)
            if clock() >= until:
                await _send(writer, "".join(part))
                await asyncio.sleep(0)
                part.clear()
                until = clock() + SLICE_S
        await _send(writer, "".join(part))


def _request_line(head: bytes) -> tuple[str, str]:
    """Method and path, without what is asked behind the path."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    return method, rest.partition(" ")[0].partition("?")[0]


def _head(status: HTTPStatus) -> str:
    """The connection's end is the answer's: its length is not known before."""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {CONTENT_TYPE}\r\nConnection: close\r\n\r\n"
    )


def _refusal(status: HTTPStatus) -> str:
    return f"{_head(status)}{status.phrase}\n"


async def _send(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(text.encode())
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        await writer.drain()
