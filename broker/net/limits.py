"""What strangers may ask of this node's memory: bytes held, connections open, lines logged.

Source: reliability.md section 8.2; cluster.md section 5 (Kafka's names and defaults).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from .bulk_framing import ReceiveBuffers

if TYPE_CHECKING:
    from barnabas.broker.config import NetworkSettings

log = logging.getLogger(__name__)

FREE_BYTES = 64 << 10
"""A connection may hold so much of an unfinished frame without asking the budget."""
LIST_BYTES_MAX = 4 << 20
"""A client's request that is a list of names and numbers may be so long, 200,000 partitions say.

Each byte of it costs the loop a microsecond and the memory a hundredfold while it is served.
"""
PARKED_MAX = 256
"""Requests of one connection that may wait for their answers at once."""
WRITE_BUFFER_MAX = 1 << 20
"""Unsent answers above which a connection is not read any more."""
STALL_S = 30.0
"""A frame must grow by FREE_BYTES, and a full write buffer shrink, within this."""
AUTHENTICATION_S = 10.0
UNAUTHENTICATED_BYTES_MAX = 512 << 10
COMPLAINTS_MAX = 1000


class Waiting(Protocol):
    """A connection that stopped reading because the budget was spent."""

    def resume(self) -> None:
        """Read again: the budget has room."""


class Budget:
    """A bound on the bytes that all connections hold together.

    The bound is soft by one frame: when everything held is unfinished nobody could ever give
    back, so the one that waited longest goes on regardless.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: dict[Waiting, None] = {}
        self._favoured: Waiting | None = None

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

    def give(self, count: int) -> None:
        """Count bytes that are held no more; resumes whoever waits while there is room."""
        self.used -= count
        assert self.used >= 0, "more given back than taken"
        while self._waiting and not self.is_spent:
            self._next().resume()

    def wait(self, who: Waiting) -> bool:
        """Put ``who`` in the queue; False when it is its turn to go on regardless."""
        if self._favoured is None:
            self._favoured = who
        if who is self._favoured:
            return False
        self._waiting[who] = None
        return True

    def leave(self, who: Waiting) -> None:
        """Forget ``who``: its frame is whole, or its peer is gone."""
        self._waiting.pop(who, None)
        if who is self._favoured:
            self._favoured = None
            if self._waiting:
                self._favoured = self._next()
                self._favoured.resume()

    def _next(self) -> Waiting:
        who = next(iter(self._waiting))
        del self._waiting[who]
        return who


class Crowd:
    """Counts connections against ``max.connections`` and ``max.connections.per.ip``."""

    def __init__(self, connections_max: int, per_host_max: int) -> None:
        self.total = 0
        self._connections_max = connections_max
        self._per_host_max = per_host_max
        self._hosts: Counter[str] = Counter()

    def admits(self, host: str) -> bool:
        """Count one more connection from ``host`` unless that would be too many."""
        if self.total >= self._connections_max or self._hosts[host] >= self._per_host_max:
            return False
        self.total += 1
        self._hosts[host] += 1
        return True

    def left(self, host: str) -> None:
        """A connection that was admitted has ended."""
        self.total -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


class Complaints:
    """Logs each kind of misbehaviour once for a host, and never without bound."""

    def __init__(self) -> None:
        self._made: set[tuple[str, str]] = set()

    def make(self, host: str, reason: str) -> None:
        """Log at INFO why a connection is closed, unless ``host`` was told so before."""
        is_new = (host, reason) not in self._made and len(self._made) < COMPLAINTS_MAX
        if is_new:
            self._made.add((host, reason))
        level = logging.INFO if is_new else logging.DEBUG
        log.log(level, "closed connection host=%s reason=%.200r", host, reason)


class Limits:
    """All of it together: one for the whole node, shared by its listeners."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.frame_bytes_max = settings.socket_request_max_bytes
        self.idle_s = settings.connections_max_idle_ms / 1000
        self.requests = Budget(settings.queued_max_request_bytes)
        self.answers = Budget(settings.queued_max_request_bytes)
        self.crowd = Crowd(settings.max_connections, settings.max_connections_per_ip)
        self.complaints = Complaints()
        self.buffers = ReceiveBuffers()
