"""The HTTP listener for metrics and status: GET /metrics, and the pages that it is given.

A scrape is made in slices, so that no request of a client waits for it; who asks at length, asks
slowly or comes in crowds is sent away. Source: docs/spec/users.md §4 (slices of 2 ms);
docs/spec/console.md §2.2 (pages, and who may read them).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from .exposition import CONTENT_TYPE
from .http_answer import PLAIN, HttpRequest, Page, parse_head
from .open_metrics import CONTENT_TYPE as OPEN_TYPE
from .open_metrics import is_wanted, open_metrics
from .process_families import STARTED_S

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
_METRICS: Final = "/metrics"
OPEN_PAGES: Final = ("/healthz", "/readyz")
"""Answered to everybody: a prober has no token."""
_NO_PAGES: Final[Mapping[str, Page]] = MappingProxyType({})


class MetricsServer:
    """Answers scrapes with whatever ``render`` yields, one connection a scrape.

    Without a ``token`` everybody may scrape, and read other pages from this machine only. With one
    whoever asks from another machine has to show it.
    """

    def __init__(
        self, render: Render, pages: Mapping[str, Page] = _NO_PAGES, token: str | None = None
    ) -> None:
        self._render = render
        self._pages = pages
        self._token = token
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
            writer.close()
            # close() waits for the peer to read what is left, for ever if it never does.
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await writer.wait_closed()
        except (OSError, TimeoutError) as error:
            log.debug("metrics were not fetched: %r", error)
        finally:
            del self._peers[task]
            writer.transport.abort()

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
        request = parse_head(head, _peer(writer))
        refusal = self._refusal_of(request)
        if refusal is not None:
            await _send(writer, _refusal(refusal))
        elif request.path.rstrip("/") == _METRICS:
            is_open = is_wanted(request.headers.get("accept", ""))
            await _send(writer, _head(HTTPStatus.OK, OPEN_TYPE if is_open else CONTENT_TYPE))
            if request.method == "GET":
                lines = self._render()
                if is_open:
                    lines = open_metrics(lines, STARTED_S)
                await self._write_metrics(writer, lines)
        else:
            answer = await self._pages[request.path.rstrip("/")](request)
            body = answer.body if request.method == "GET" else ""
            await _send(writer, _head(answer.status, answer.content_type) + body)

    def _refusal_of(self, request: HttpRequest) -> HTTPStatus | None:
        path = request.path.rstrip("/")
        if request.method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED
        if path != _METRICS and path not in self._pages:
            return HTTPStatus.NOT_FOUND
        if path in OPEN_PAGES or may_read(request, self._token):
            return None
        if self._token is not None:
            return HTTPStatus.UNAUTHORIZED
        return None if path == _METRICS else HTTPStatus.FORBIDDEN

    async def _write_metrics(self, writer: asyncio.StreamWriter, lines: Iterator[str]) -> None:
        clock = asyncio.get_running_loop().time
        part: list[str] = []
        until = clock() + SLICE_S
        for line in lines:
            part.append(line)
            if clock() >= until:
                await _send(writer, "".join(part))
                await asyncio.sleep(0)
                part.clear()
                until = clock() + SLICE_S
        await _send(writer, "".join(part))


def may_read(request: HttpRequest, token: str | None) -> bool:
    """Whether who asks is told what is not for everybody."""
    return request.is_local or (token is not None and request.shows(token))


def _peer(writer: asyncio.StreamWriter) -> str:
    address = writer.get_extra_info("peername")
    return str(address[0]) if isinstance(address, tuple) else ""


def _head(status: HTTPStatus, content_type: str) -> str:
    """The connection's end is the answer's: its length is not known before."""
    challenge = "WWW-Authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n{challenge}"
        f"Content-Type: {content_type}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )


def _refusal(status: HTTPStatus) -> str:
    why = "set metrics.token" if status == HTTPStatus.FORBIDDEN else status.phrase
    return f"{_head(status, PLAIN)}{why}\n"


async def _send(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(text.encode())
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        await writer.drain()
