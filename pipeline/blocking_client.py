"""A client for code that blocks: an event loop in a thread of its own, connections kept.

Python workers of Spark outlive tasks and batches, so a client is kept for each cluster and
used again by whatever runs next in the process. Source: docs/spec/pipeline.md §1.2 and §5.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster

T = TypeVar("T")


class BlockingClient:
    """One loop that runs until :meth:`close`, and one cluster on it; usable from any thread."""

    def __init__(self, bootstrap: str, config: ClientConfig) -> None:
        config = dataclasses.replace(config, client_id="barnabas-spark")
        self.cluster = Cluster(bootstrap, config)
        """For coroutines given to :meth:`run` or :meth:`start`, not for other loops."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="barnabas-client", daemon=True
        )
        self._thread.start()

    def run(self, asked: Coroutine[Any, Any, T]) -> T:
        """Wait for what a coroutine returns, or raise what it raises."""
        return self.start(asked).result()

    def start(self, asked: Coroutine[Any, Any, T]) -> Future[T]:
        """Let a coroutine run while the caller does something else."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop)

    def close(self) -> None:
        """End connections, loop and thread; twice is allowed."""
        if self._loop.is_closed():
            return
        self.run(self.cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_clients: Final[dict[tuple[int, str, ClientConfig], BlockingClient]] = {}
_IN_CLEAR: Final = ClientConfig()
_lock: Final = threading.Lock()


def client_for(bootstrap: str, config: ClientConfig = _IN_CLEAR) -> BlockingClient:
    """The client of this process for a cluster; a process that was forked makes its own.

    Of ``config`` it is TLS and the login that count.
    """
    key = (os.getpid(), bootstrap, config)
    with _lock:
        if key not in _clients:
            _clients[key] = BlockingClient(bootstrap, config)
        return _clients[key]


def close_clients(bootstrap: str | None = None) -> None:
    """Close every client of this process, or of one cluster, for a program that goes on without."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid() and bootstrap in (None, key[1])]
        for key in mine:
            _clients.pop(key).close()
