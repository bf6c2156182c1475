"""Why no ZooKeeper session comes: tries each server and logs what came of it.

Source: kazoo tells nothing of a connection that it could not make but by its own log.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

Server = tuple[str, int]

log = logging.getLogger(__name__)

NOTICE_S: Final = 2.0
"""After so long without a session it is said what is awaited, and why."""
NOTICE_AGAIN_S: Final = 5.0
TRY_S: Final = 1.0
"""How long one server may take to accept a connection."""


async def log_while_waiting(servers: Sequence[Server], timeout_s: float) -> None:
    """Say for whom this process waits, and again, until cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(NOTICE_S)
    while True:
        reason = await diagnose(servers)
        log.warning(
            "waiting for a session with ZooKeeper for %.0f s, giving up after %.0f s: %s",
            loop.time() - began,
            timeout_s,
            reason,
        )
        await asyncio.sleep(NOTICE_AGAIN_S)


async def diagnose(servers: Sequence[Server]) -> str:
    """What comes of connecting to each of the servers."""
    found = await asyncio.gather(*(_tried(host, port) for host, port in servers))
    return "; ".join(found)


async def _tried(host: str, port: int) -> str:
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(TRY_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{address} does not answer"
    except OSError as error:
        number = error.errno or 0
        return f"{address}: {os.strerror(number) if number > 0 else error.strerror or error}"
    writer.close()
    return f"{address} accepts connections, but gives no session"
