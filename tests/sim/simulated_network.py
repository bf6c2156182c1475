"""An in-memory network for the simulated loop: ordered streams, random latency, cuts.

Whoever opens a port or a connection owns that end of it: the value of ``OWNER`` in its task. What
crosses a cut between two owners waits until the cut is healed.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any
from zlib import crc32

Factory = Callable[[], Any]

OWNER: ContextVar[str] = ContextVar("owner", default="client")
"""The machine that the running code is on."""


class Network:
    """Every listening port and every open connection of one simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._servers: dict[tuple[str, int], Server] = {}
        self._next_port = 40_000
        self._cuts: set[frozenset[str]] = set()
        self._pipes: dict[Pipe, None] = {}
        self.bytes_carried = 0
        self.trace = 0
        """A checksum of all that was ever sent, in its order."""

    def latency(self) -> float:
        return self._rng.uniform(0.00005, 0.002)

    def listen(self, factory: Factory, host: Any, port: int) -> Server:
        port = port or self._free_port()
        address = (_one(host), port)
        if address in self._servers:
            raise OSError(98, f"address in use: {address}")
        server = self._servers[address] = Server(self, factory, address)
        return server

    def connect(self, factory: Factory, host: str, port: int) -> tuple[Pipe, Any]:
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        here, there = (host, self._free_port()), (host, port)
        near = Pipe(self, here, there, copy_context())
        far = Pipe(self, there, here, server.context)
        near.other, far.other = far, near
        protocol = factory()
        server.context.copy().run(lambda: far.attach(server.factory()))
        near.attach(protocol)
        server.pipes.append(far)
        self._pipes |= {near: None, far: None}
        return near, protocol

    def cut(self, one: str, other: str) -> None:
        """Nothing arrives between two owners until :meth:`heal`."""
        self._cuts.add(frozenset((one, other)))

    def heal(self, owner: str | None = None) -> None:
        """Undo the cuts around ``owner``, or all: what waited arrives."""
        self._cuts = {pair for pair in self._cuts if owner is not None and owner not in pair}
        for pipe in sorted(self._pipes, key=lambda pipe: pipe.here):
            pipe.release()

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cuts

    def is_reachable(self, host: str, port: int) -> bool:
        """Whether the running code can reach whoever listens there; nobody can always be."""
        server = self._servers.get((host, port))
        return server is None or not self.is_cut(OWNER.get(), server.owner)

    def kill(self, owner: str) -> None:
        """The machine's connections break, and nothing it still does is heard."""
        for pipe in [pipe for pipe in self._pipes if owner in (pipe.owner, pipe.other.owner)]:
            pipe.tear()

    def carried(self, data: bytes) -> None:
        """Some bytes are on their way."""
        self.bytes_carried += len(data)
        self.trace = crc32(data, self.trace)

    def dropped(self, pipe: Pipe) -> None:
        self._pipes.pop(pipe, None)

    def forget(self, address: tuple[str, int]) -> None:
        self._servers.pop(address, None)

    def call_later(
        self, delay: float, context: Context, call: Callable[..., None], *args: Any
    ) -> None:
        self._loop.call_later(delay, call, *args, context=context.copy())

    def call_at(self, when: float, context: Context, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_at(when, call, *args, context=context.copy())

    def now(self) -> float:
        return self._loop.time()

    def torn(self, data: bytes) -> list[bytes]:
        """The same bytes as they may arrive: in one piece, or cut somewhere."""
        if len(data) < 2 or self._rng.random() < 0.7:
            return [data]
        cut = self._rng.randrange(1, len(data))
        return [data[:cut], data[cut:]]

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class Server:
    """A listening port; has what the product asks of an asyncio server."""

    def __init__(self, network: Network, factory: Factory, address: tuple[str, int]) -> None:
        self._network = network
        self.factory = factory
        self.address = address
        self.context = copy_context()
        self.owner = OWNER.get()
        self.pipes: list[Pipe] = []
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        self._network.forget(self.address)

    async def wait_closed(self) -> None:
        return None


class Pipe(asyncio.Transport):
    """One end of a connection: what is written arrives at the other end later, in order."""

    def __init__(
        self, network: Network, here: tuple[str, int], there: tuple[str, int], context: Context
    ) -> None:
        super().__init__()
        self._network = network
        self.here = here
        self.context = context
        self.owner = context.get(OWNER, "client")
        self._held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._extra = {"sockname": here, "peername": there}
        self._arrives_last = 0.0
        self._closing = False
        self._is_reading = True
        self._inbox: deque[bytes] = deque()
        self.other: Pipe
        self.protocol: Any

    def attach(self, protocol: Any) -> None:
        self.protocol = protocol
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        for piece in self._network.torn(bytes(data)):
            self._network.carried(piece)
            self._deliver(self.other.receive, piece)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(data) for data in list_of_data))

    def receive(self, data: bytes) -> None:
        self._inbox.append(data)
        self._pump()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._network.call_later(0, self.context, self._pump)

    def is_reading(self) -> bool:
        return self._is_reading

    def _pump(self) -> None:
        while self._inbox and self._is_reading and not self._closing:
            self.protocol.data_received(self._inbox.popleft())

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def close(self) -> None:
        if not self._closing:
            self._deliver(self.other.peer_closed)
            self._shut(None)

    def abort(self) -> None:
        self.close()

    def peer_closed(self) -> None:
        if not self._closing:
            self._shut(None)

    def tear(self) -> None:
        """End at once, without a word to the other side."""
        self.peer_closed()

    def _shut(self, error: Exception | None) -> None:
        self._closing = True
        self._network.dropped(self)
        self._network.call_later(0, self.context, self.protocol.connection_lost, error)

    def _deliver(self, call: Callable[..., None], *args: Any) -> None:
        arrives = max(self._arrives_last, self._network.now() + self._network.latency())
        self._arrives_last = arrives + 1e-9
        self._network.call_at(arrives, self.other.context, self._arrive, call, args)

    def _arrive(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._held or self._network.is_cut(self.owner, self.other.owner):
            self._held.append((call, args))
        else:
            call(*args)

    def release(self) -> None:
        """A cut was healed, perhaps the one that holds up what was sent here."""
        if self._network.is_cut(self.owner, self.other.owner):
            return
        held, self._held = self._held, deque()
        for call, args in held:  # at once: what is on its way already must not overtake them
            self.other.context.copy().run(call, *args)


def _one(host: Any) -> str:
    return host if isinstance(host, str) else next(iter(host))
