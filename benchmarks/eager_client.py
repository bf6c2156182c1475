"""A client that loses no time: it finds its coordinator again within milliseconds.

Source: Kafka 3.9's FindCoordinator v1. A failover is measured with it, because most clients wait
longer than the servers do.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections.abc import Sequence
from typing import ClassVar, Final

FIND_COORDINATOR = 10
RETRY_S: Final = 0.01
"""Between two attempts."""
PATIENCE_S: Final = 0.1
"""How long one node is waited for that is asked for the coordinator."""
DOUBT_S: Final = 0.1
"""A request without an answer for so long: others are asked who coordinates now."""
REST_S: Final = 2.0
"""A node that did not answer is asked last for so long."""
SETTLED_S: Final = 1.0
KEPT: Final = 10_000
"""Acknowledgements looked at; one failover has fewer."""

Address = tuple[str, int]


class Unanswered(Exception):  # noqa: N818 - says what happened
    """The connection ended, or nobody answered in time."""


class BrokerConnection:
    """One connection with one request under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: Address) -> BrokerConnection:
        """Connect; raises Unanswered."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return cls(*await asyncio.open_connection(*address))
        except (OSError, TimeoutError) as problem:
            raise Unanswered(str(problem)) from problem

    async def call(self, frame: bytes) -> bytes:
        """The answer without its length; raises Unanswered when the connection ends."""
        self._writer.write(frame)
        try:
            size = struct.unpack(">i", await self._reader.readexactly(4))[0]
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as problem:
            raise Unanswered(str(problem)) from problem

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()


class EagerClient:
    """Has something acknowledged again and again, without rest, until it is cancelled."""

    KEY_TYPE: ClassVar[int]
    """What is coordinated: 0 groups, 1 transactions."""

    def __init__(self, addresses: Sequence[Address], name: str) -> None:
        self.name = name
        """The group, or the transactional id."""
        self.acknowledged: list[tuple[float, Address]] = []
        """When each acknowledgement came (monotonic), and from where."""
        self.codes: dict[int, int] = {}
        """How often each code was a refusal."""
        self._addresses = list(addresses)
        self._tired: dict[Address, float] = {}

    async def run(self) -> None:
        """Go on for ever."""
        raise NotImplementedError

    async def find(self, *, but: Address | None = None) -> Address:
        """Where the coordinator is, as the first node says that knows one other than ``but``."""
        while True:
            now = time.monotonic()
            for address in sorted(self._addresses, key=lambda at: self._tired.get(at, 0.0) > now):
                if address != but and (found := await self._ask(address)) not in (None, but):
                    assert found is not None
                    return found
            await asyncio.sleep(RETRY_S)

    def outage(self, fault: float, victim: Address) -> float | None:
        """The longest time without an acknowledgement from ``fault`` on, in seconds.

        None until another node than the victim acknowledges, and has done so for SETTLED_S: where
        a node hands over before it stops, what counts comes after the first acknowledgement.
        """
        times = [(when, at) for when, at in self.acknowledged[-KEPT:] if when > fault]
        elsewhere = next((when for when, at in times if at != victim), None)
        if elsewhere is None or times[-1][0] < elsewhere + SETTLED_S:
            return None
        moments = [fault, *(when for when, _ in times)]
        return max(later - earlier for earlier, later in itertools.pairwise(moments))

    def acknowledge(self, address: Address) -> None:
        """Note that the node at ``address`` did now what it was asked."""
        self.acknowledged.append((time.monotonic(), address))

    def refuse(self, code: int) -> None:
        """Note a refusal."""
        self.codes[code] = self.codes.get(code, 0) + 1

    async def call_coordinator(
        self, connection: BrokerConnection, address: Address, frame: bytes
    ) -> bytes:
        """The answer of the coordinator at ``address``, which may be gone meanwhile.

        Raises Unanswered when the connection ends, or when another node coordinates.
        """
        answer = asyncio.ensure_future(connection.call(frame))
        other: asyncio.Future[Address] | None = None
        try:
            await asyncio.wait([answer], timeout=DOUBT_S)
            if not answer.done():
                other = asyncio.ensure_future(self.find(but=address))
                await asyncio.wait([answer, other], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Unanswered("another node coordinates")
            return answer.result()
        finally:
            answer.cancel()
            if other is not None:
                other.cancel()

    async def _ask(self, address: Address) -> Address | None:
        try:
            connection = await BrokerConnection.open(address)
        except Unanswered:
            self._tired[address] = time.monotonic() + REST_S
            return None
        body = text(self.name) + bytes([self.KEY_TYPE])
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await connection.call(request(FIND_COORDINATOR, 1, body))
        except (Unanswered, TimeoutError):
            self._tired[address] = time.monotonic() + REST_S
            return None
        finally:
            connection.close()
        _, _, code, message_bytes = struct.unpack_from(">iihh", answer)
        if code:
            return None
        at = 12 + max(0, message_bytes) + 4
        (size,) = struct.unpack_from(">h", answer, at)
        at += 2
        return answer[at : at + size].decode(), struct.unpack_from(">i", answer, at + size)[0]


def request(key: int, version: int, body: bytes) -> bytes:
    """A frame of a version that is not flexible."""
    head = struct.pack(">hhi", key, version, 1) + text("eager")
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    """A string with its length in two bytes."""
    return struct.pack(">h", len(value)) + value.encode()
