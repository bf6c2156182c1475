"""Runs a console until it is told to stop: uvicorn on one socket, streams ended in order.

Source: docs/spec/console.md §3 (technology).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn

from barnabas.broker.runtime.gc_tuning import tune
from barnabas.client.client_config import ClientConfig
from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.failure import Failure

from .app import Console
from .console_settings import ConsoleSettings

GRACE_S: Final = 2
KEEP_ALIVE_S: Final = 30
CONNECTIONS_MOST: Final = 1_000
"""One more is answered 503."""
_BACKLOG: Final = 128


def serve(
    bootstrap: str,
    config: ClientConfig,
    settings: ConsoleSettings,
    announce: Callable[[str], None],
) -> None:
    """Listen, tell ``announce`` the URL, and serve until SIGINT or SIGTERM.

    Raises Failure when the address cannot be had.
    """
    console = Console(bootstrap, config, settings)
    tune()  # 100,000 partitions live for long: nobody looks for cycles among them all the time
    with _listening(settings) as listener:
        announce(login_url(console, settings, listener.getsockname()[1]))
        server = _Server(
            console,
            uvicorn.Config(
                console.app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=settings.is_behind_proxy,
                forwarded_allow_ips="*" if settings.is_behind_proxy else None,
                limit_concurrency=CONNECTIONS_MOST,
                timeout_graceful_shutdown=GRACE_S,
                timeout_keep_alive=KEEP_ALIVE_S,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
                lifespan="on",
            ),
        )
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends all streams when a signal comes: uvicorn would wait for them until its patience ends."""

    def __init__(self, console: Console, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._console = console
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: end streams, then as uvicorn does."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._console.streams.closing.set)
        super().handle_exit(sig, frame)


def login_url(console: Console, settings: ConsoleSettings, port: int) -> str:
    """Where a browser finds the console; with the token, where one is needed."""
    scheme = "https" if settings.is_secure else "http"
    host = settings.names[0] if settings.names else settings.host
    shown = f"[{host}]" if ":" in host else host
    base = f"{scheme}://{shown}" + ("" if settings.is_behind_proxy else f":{port}")
    return f"{base}/login?token={console.logins.token.text}" if settings.auth == "token" else base


def _listening(settings: ConsoleSettings) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise Failure(f"--listen {settings.host}: {describe_os_error(error)}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Failure(
            f"{settings.host}:{settings.port}: {describe_os_error(error)} (--listen takes another "
            "address, port 0 a free one)"
        ) from None
    return listener
