"""Reads 16 KiB at a time while memory is scarce, and 4 KiB of strangers at any time.

A connection that may read on is given up to 256 KiB by one read, before it can be asked whether
they fit: 2,000 peers with half a frame each took 491 MB under a budget of 256. The kernel writes
into one buffer of the node's, and what came is copied out of it. Strangers have 16 MiB together:
5,000 of them with a fifth of a token each took 350.
Source: docs/spec/reliability.md §8.2 (memory by many partial frames); docs/spec/security.md §7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .limits import TINY_BYTES
from .receiver import Receiver

if TYPE_CHECKING:
    from .connection import Connection
    from .limits import Limits


class SmallReceiver(Receiver):
    """Stands between the transport and its connection until memory is plentiful again."""

    def __init__(self, connection: Connection, limits: Limits) -> None:
        super().__init__(connection)
        self._limits = limits

    def get_buffer(self, sizehint: int) -> memoryview:
        """The node's: what is in it is taken before another connection reads."""
        return self._limits.small_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over what came; the next read is an ordinary one if there is memory for it."""
        data = bytes(self._limits.small_buffer[:nbytes])
        connection = self._connection
        if not self._limits.requests.is_scarce:
            connection.read_by(connection)
        connection.data_received(data)


class StrangerReceiver(SmallReceiver):
    """Stands between the transport and its connection until the peer has proved who it is."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """As much of the node's as may be held without asking."""
        return self._limits.small_buffer[:TINY_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over what came; the connection says when this ends."""
        self._connection.data_received(bytes(self._limits.small_buffer[:nbytes]))
