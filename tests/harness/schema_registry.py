"""A schema registry on the loopback: what Confluent's answers for the schemas it was given."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Registry:
    """Its address, what it holds by path, and what it was asked."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    """A document by path and query; bytes are sent as they are, a number is a refusal."""
    asked: list[str] = field(default_factory=list)
    shown: list[str | None] = field(default_factory=list)
    """The header Authorization of each question."""


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """It answers until the block ends."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.shown.append(self.headers.get("Authorization"))
            found = registry.answers.get(self.path, 404)
            if isinstance(found, int):
                self.send_response(found)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                return
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Not into the output of tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def framed(schema_id: int, data: bytes) -> bytes:
    """As serializers write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + data


def in_base64(data: bytes) -> str:
    """As a registry tells a descriptor."""
    return base64.b64encode(data).decode()
