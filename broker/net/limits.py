"""What strangers may ask of this node's memory: bytes held, connections open.

Source: docs/spec/reliability.md §8.2; docs/spec/cluster.md §5 (Kafka's names and defaults).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.security.audit_log import AuditLog

from .bulk_framing import ReceiveBuffers
from .connection_quotas import ConnectionQuotas
from .rejection_log import RejectionLog
from .strangers import STRANGERS_BYTES_MAX, Strangers

if TYPE_CHECKING:
    from barnabas.broker.settings.listener_quotas import ListenerQuota
    from barnabas.broker.settings.node_config import NetworkSettings

    from .connection import Connection

SMALL_FRAME_BYTES_MAX = 64 << 10
"""A longer frame is a large one, from its first byte."""
TINY_BYTES = 4 << 10
"""A connection may hold so much of an unfinished frame without asking the budget."""
SMALL_READ_BYTES = 16 << 10
"""What a connection reads at once while memory is scarce; otherwise 256 KiB."""
LIST_BYTES_MAX = 4 << 20
"""A client's request that is a list of names and numbers may be so long, 200,000 partitions say.

Each byte of it costs the loop a microsecond and the memory a hundredfold while it is served.
"""
PENDING_RESPONSES_MAX = 256
"""Requests of one connection that may wait for their answers at once."""
WRITE_BUFFER_MAX = 1 << 20
"""Unsent answers above which a connection is not read any more."""
STALL_S = 30.0
"""A frame must grow by FREE_BYTES, and a full write buffer shrink, within this."""
AUTHENTICATION_S = 10.0


class MemoryQueue:
    """Connections that wait, in order, until no more than ``bytes_max`` is held.

    When everything held is unfinished nobody could ever give back, so the one that waited longest
    goes on regardless.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._waiting: dict[Connection, None] = {}
        self._favoured: Connection | None = None

    def wait(self, connection: Connection) -> bool:
        """Put ``connection`` at the end; False when it is its turn to go on regardless."""
        if self._favoured is None:
            self._favoured = connection
        if connection is self._favoured:
            return False
        self._waiting[connection] = None
        return True

    def favours(self, connection: Connection) -> bool:
        """Whether ``connection`` goes on regardless."""
        return connection is self._favoured

    def leave(self, connection: Connection) -> None:
        """Forget ``connection``: its frame is whole, or its peer is gone."""
        self._waiting.pop(connection, None)
        if connection is self._favoured:
            self._favoured = None
            if self._waiting:
                self._favoured = self._next()
                self._favoured.resume()

    def resume(self, budget: MemoryPool) -> None:
        """Resume the first, and so on while there is room."""
        while self._waiting and budget.used <= self.bytes_max:
            self._next().resume()

    def _next(self) -> Connection:
        connection = next(iter(self._waiting))
        del self._waiting[connection]
        return connection


class MemoryPool:
    """A bound on the bytes that all connections hold together, from the first byte of a frame.

    The bound is soft by one frame, by TINY_BYTES for each connection and by what the reads of one
    turn bring, which are small once half of it is used. A quarter is kept for small frames, so that
    large ones which stop growing hold up nobody but each other.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.is_scarce = False
        """More than half was used, and not less than a quarter since."""
        self.on_scarce: list[Callable[[], None]] = []
        """Told when it becomes so, before any other connection reads again."""
        self._large = MemoryQueue(bytes_max - bytes_max // 4)
        self._small = MemoryQueue(bytes_max)

    @property
    def is_spent(self) -> bool:
        """Whether more is held than should be."""
        return self.used > self.bytes_max

    @property
    def room(self) -> int:
        """How many bytes may still be taken."""
        return max(0, self.bytes_max - self.used)

    def take(self, count: int) -> None:
        """Count bytes that are held from now on."""
        self.used += count
        if self.used > self.bytes_max // 2 and not self.is_scarce:
            self.is_scarce = True
            for callback in self.on_scarce:
                callback()

    def give(self, count: int) -> None:
        """Count bytes that are held no more; resumes whoever waits while there is room.

        Nobody waits while memory is not scarce: connections ask whether they must only when it is,
        and all are resumed when it becomes plentiful.
        """
        self.used -= count
        assert self.used >= 0, "more given back than taken"
        if self.is_scarce and self.used <= self.bytes_max // 4:
            self.is_scarce = False
        self._small.resume(self)
        self._large.resume(self)

    def must_wait(self, connection: Connection, size: int) -> bool:
        """Whether ``connection`` reads no more for now; its unfinished frame has ``size``.

        Then it is resumed later; in any case it has to :meth:`leave` when it holds less than
        TINY_BYTES, or nothing.
        """
        line, other = self._small, self._large
        if size > SMALL_FRAME_BYTES_MAX:
            line, other = other, line
        # Favoured until its frame is whole: else each of them would grow in turn, and none end.
        if other.favours(connection):
            return False
        other.leave(connection)
        return self.used > line.bytes_max and line.wait(connection)

    def leave(self, connection: Connection) -> None:
        """Forget ``connection``: its frame is whole, or its peer is gone."""
        self._small.leave(connection)
        self._large.leave(connection)


class Limits:
    """All of it together: one for the whole node, shared by its listeners."""

    def __init__(
        self,
        settings: NetworkSettings,
        listeners: Mapping[str, ListenerQuota] | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.frame_bytes_max = settings.socket_request_max_bytes
        self.idle_s = settings.connections_max_idle_ms / 1000
        self.requests = MemoryPool(settings.queued_max_request_bytes)
        self.answers = MemoryPool(settings.queued_max_request_bytes)
        self.stranger_requests = tuple(MemoryPool(STRANGERS_BYTES_MAX) for _ in range(2))
        """What is held of peers without proof: on listeners of clients, on that of nodes."""
        self.connection_quotas = ConnectionQuotas(settings, listeners)
        self.strangers = Strangers(self.connection_quotas)
        self.rejection_log = RejectionLog()
        self.audit = audit or AuditLog()
        self.buffers = ReceiveBuffers()
        self.small_buffer = memoryview(bytearray(SMALL_READ_BYTES))
        """Where every connection reads to while memory is scarce."""
