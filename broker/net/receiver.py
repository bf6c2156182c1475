"""What stands between a transport and its connection where bytes are received in another way.

Source: asyncio's BufferedProtocol; everything but the bytes is passed on as it comes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection


class Receiver(asyncio.BufferedProtocol):
    """Lends the kernel a buffer; who inherits says which, and what becomes of the bytes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def eof_received(self) -> bool:
        """As the connection says."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """As the connection is told."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """As the connection is told."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """As the connection is told."""
        self._connection.resume_writing()
