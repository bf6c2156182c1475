"""Keys of those who sign tokens, read from files and over https: docs/spec/security.md §2 (S36)."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.security import jwks
from barnabas.broker.security.jwks import KeySet, KeySets, KeysUnreadable, read_keys
from barnabas.broker.settings.oauthbearer_settings import OAuthBearerSettings
from tests.harness.bearer_tokens import ec_key, jwk, rsa_key, write_jwks
from tests.harness.bearer_tokens import jwks as document
from tests.harness.certificates import Authority

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def settings(url: str, **more: Any) -> OAuthBearerSettings:
    return OAuthBearerSettings(jwks_url=url, **more)


def sends(data: bytes, code: int = 200, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


@contextmanager
def https_server(directory: Path, answers: dict[str, Answer]) -> Iterator[str]:
    """A server of 127.0.0.1 whose authority stands in ``authority.pem``; its address."""
    authority = Authority()
    (directory / "authority.pem").write_text(authority.pem)
    authority.issue("server").pem_store(directory / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers[self.path](self)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that shares a busy machine is not too slow."""
    monkeypatch.setattr(jwks, "READ_S", 60.0)


@pytest.mark.usefixtures("patience")
def test_keys_are_read_over_https_from_a_server_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"/keys": sends(document(jwk(rsa_key())))}
    with https_server(tmp_path, good) as url:
        with pytest.raises(KeysUnreadable, match="certificate"):
            read_keys(f"{url}/keys")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert read_keys(f"{url}/keys") == [jwk(rsa_key())]


@pytest.mark.usefixtures("patience")
def test_no_redirect_is_followed_and_no_answer_is_longer_than_a_megabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    asked: list[str] = []
    long = json.dumps({"keys": [jwk(rsa_key())], "x": "y" * jwks.BYTES_MAX}).encode()
    answers = {
        "/moved": sends(b"", 302, Location="/keys"),
        "/keys": lambda _: asked.append("keys"),
        "/long": sends(long),
        "/missing": sends(b"", 404),
        "/text": sends(b"<html>"),
    }
    with https_server(tmp_path, answers) as url:
        for path, what in (
            ("/moved", "302"),
            ("/long", "more than"),
            ("/missing", "404"),
            ("/text", "not JSON"),
        ):
            with pytest.raises(KeysUnreadable, match=what):
                read_keys(url + path)
    assert asked == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b'{"keys":[7]}',
        b'{"keys":[{"use":"enc"}]}',
        b"[" * 100_000,
        b"\xff",
        json.dumps({"keys": [{}] * (jwks.KEYS_MAX + 1)}).encode(),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_set_of_keys_is_told_so(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(data)
    with pytest.raises(KeysUnreadable):
        read_keys(path.as_uri())


async def test_keys_are_read_again_when_they_are_due_and_kept_where_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    url = write_jwks(tmp_path / "keys.json", jwk(rsa_key(), "a"))
    keys = KeySet(settings(url, refresh_ms=60_000), clock)
    assert keys.due_at <= clock.now
    await keys.refresh()
    assert keys.find("a", "RSA") == jwk(rsa_key(), "a")
    assert keys.due_at == clock.now + 60
    (tmp_path / "keys.json").unlink()
    await keys.refresh()
    assert "could not read the keys" in caplog.text
    assert keys.find("a", "RSA") is not None
    waits = []
    for _ in range(10):
        waits.append(round(keys.due_at - clock.now, 3))
        await keys.refresh()
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10]
    write_jwks(tmp_path / "keys.json", jwk(ec_key(), "b"))
    await keys.refresh()
    assert keys.find("a", "RSA") is None
    assert keys.find("b", "EC") is not None
    assert keys.due_at == clock.now + 60


async def test_who_asks_while_keys_are_read_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def read(url: str) -> list[Any]:
        reads.append(url)
        return [jwk(rsa_key())]

    monkeypatch.setattr(jwks, "read_keys", read)
    keys = KeySet(settings("file:///x"), Clock())
    await asyncio.gather(*(keys.refresh() for _ in range(5)))
    assert reads == ["file:///x"]
    assert not keys.may_ask_again()


async def test_all_keys_are_read_while_the_node_runs(tmp_path: Path) -> None:
    """Those of a listener that is opened later, too; listeners told the same share them."""
    sets = KeySets()
    running = asyncio.create_task(sets.run())
    await asyncio.sleep(0)
    found = []
    for name in ("a", "b"):
        url = write_jwks(tmp_path / f"{name}.json", jwk(rsa_key(), name))
        found.append(sets.of(settings(url)))
        assert sets.of(settings(url)) is found[-1]
    async with asyncio.timeout(30):
        while not (  # noqa: ASYNC110 - what is waited for tells nobody
            found[0].find("a", "RSA") and found[1].find("b", "RSA")
        ):
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


async def test_what_is_read_when_the_node_stops_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def read(url: str) -> list[Any]:
        loop.call_soon_threadsafe(began.set)
        may_end.wait(60)
        return []

    monkeypatch.setattr(jwks, "read_keys", read)
    sets = KeySets()
    keys = sets.of(settings("file:///x"))
    running = asyncio.create_task(sets.run())
    await began.wait()
    waiting = asyncio.create_task(keys.refresh())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running, waiting])
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    may_end.set()
