"""An in-memory network for the simulated loop: ordered streams, random latency, cuts."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

Factory = Callable[[], Any]


class Network:
    """Every listening port and every open connection of one simulated world."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._servers: dict[tuple[str, int], Server] = {}
        self._next_port = 40_000
        self.bytes_carried = 0

    def latency(self) -> float:
        return self._chance.uniform(0.00005, 0.002)

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
        near, far = Pipe(self, here, there), Pipe(self, there, here)
        near.other, far.other = far, near
        protocol = factory()
        far.attach(server.factory())
        near.attach(protocol)
        server.pipes.append(far)
        return near, protocol

    def forget(self, address: tuple[str, int]) -> None:
        self._servers.pop(address, None)

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(delay, call, *args)

    def call_at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_at(when, call, *args)

    def now(self) -> float:
        return self._loop.time()

    def torn(self, data: bytes) -> list[bytes]:
        """The same bytes as they may arrive: in one piece, or cut somewhere."""
        if len(data) < 2 or self._chance.random() < 0.7:
            return [data]
        cut = self._chance.randrange(1, len(data))
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

    def __init__(self, network: Network, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__()
        self._network = network
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
            self._network.bytes_carried += len(piece)
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
        self._network.call_later(0, self._pump)

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

    def _shut(self, error: Exception | None) -> None:
        self._closing = True
        self._network.call_later(0, self.protocol.connection_lost, error)

    def _deliver(self, call: Callable[..., None], *args: Any) -> None:
        arrives = max(self._arrives_last, self._network.now() + self._network.latency())
        self._arrives_last = arrives + 1e-9
        self._network.call_at(arrives, call, *args)


def _one(host: Any) -> str:
    return host if isinstance(host, str) else next(iter(host))
