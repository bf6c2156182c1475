"""The HTTP listener: what it answers, whom it sends away, and that it lets others have the loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from barnabas.broker.metrics import metrics_server
from barnabas.broker.metrics.metrics_server import HEAD_BYTES_MAX, SCRAPES_MAX, MetricsServer
from tests.net.client import until

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def opened(lines: Iterator[str] | None = None) -> AsyncIterator[int]:
    door = MetricsServer(lambda: iter(lines or ("a 1\n", "b 2\n")))
    port = await door.bind(HOST, 0)
    try:
        yield port
    finally:
        await door.close()


async def asked(port: int, head: str) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(head.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_a_scrape_is_answered_with_every_line() -> None:
    async with opened() as port:
        answer = await asked(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Type: text/plain; version=0.0.4" in answer
    assert answer.endswith("\r\n\r\na 1\nb 2\n")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /metrics?name=x HTTP/1.1", 200),
        ("HEAD /metrics HTTP/1.1", 200),
        ("GET / HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("nonsense", 405),
        ("GET /" + "x" * HEAD_BYTES_MAX + " HTTP/1.1", 431),
    ],
)
async def test_everything_else_is_refused(head: str, status: int) -> None:
    async with opened() as port:
        answer = await asked(port, f"{head}\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert answer.endswith("\n")


async def test_more_scrapes_at_once_than_allowed_are_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 600.0)  # none of them is sent away
    async with opened() as port:
        idle = [await asyncio.open_connection(HOST, port) for _ in range(SCRAPES_MAX)]
        answer = await asked(port, "")
        assert answer.startswith("HTTP/1.1 503 ")
        for _, writer in idle:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(60):
            while not answer.startswith("HTTP/1.1 200 "):
                answer = await asked(port, "GET /metrics HTTP/1.1\r\n\r\n")


async def test_others_have_the_loop_while_a_long_answer_is_made() -> None:
    turns = 0

    def long() -> Iterator[str]:
        for number in range(50):
            until = asyncio.get_running_loop().time() + 0.003
            while asyncio.get_running_loop().time() < until:
                pass
            yield f"a{number} {turns}\n"

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with opened(long()) as port:
        counting = asyncio.create_task(count())
        answer = await asked(port, "GET /metrics HTTP/1.1\r\n\r\n")
        counting.cancel()
    seen = [int(line.split()[1]) for line in answer.split("\r\n\r\n")[1].splitlines()]
    assert len(set(seen)) > len(seen) // 2


@pytest.mark.parametrize("kilobytes", [48, 8192])  # one fits into the transport, one does not
async def test_a_peer_that_never_reads_is_cut_off_in_time(
    monkeypatch: pytest.MonkeyPatch, kilobytes: int
) -> None:
    """It kept its socket for ever, and what was left to be written to it."""

    def answer() -> Iterator[str]:
        """Only now is there little time: a slow machine needs some to ask."""
        monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 0.2)
        yield "a" * (kilobytes << 10)

    server = MetricsServer(answer)
    made: list[asyncio.StreamWriter] = []
    serve = server._connected

    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(writer)
        await serve(reader, writer)

    monkeypatch.setattr(server, "_connected", noted)
    port = await server.bind(HOST, 0)
    assert server._server is not None
    server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    loop = asyncio.get_running_loop()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, (HOST, port))
        await loop.sock_sendall(deaf, b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(lambda: bool(made) and made[0].transport.get_write_buffer_size() > 0)
        assert server._peers, "it is one of those that may ask at once"
        await until(lambda: not server._peers)
        await until(lambda: made[0].transport.get_write_buffer_size() == 0)
    await server.close()


async def test_a_port_that_is_taken_names_the_setting() -> None:
    async with opened() as port:
        with pytest.raises(OSError, match=f"metrics.listener={HOST}:{port}: "):
            await MetricsServer(lambda: iter(())).bind(HOST, port)


async def test_who_is_still_asking_does_not_hold_up_the_end() -> None:
    async with opened() as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET /met")
        await writer.drain()
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
