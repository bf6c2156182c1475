"""A committer that loses no time: it finds the coordinator again within milliseconds.

Source: Kafka 3.9's OffsetCommit v2 and FindCoordinator v0. A failover is measured with it, because
most clients wait longer than the servers do.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections.abc import Sequence
from typing import Final

OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
RETRY_S: Final = 0.01
"""Between two attempts."""
PATIENCE_S: Final = 0.1
"""How long one node is waited for that is asked for the coordinator."""
DOUBT_S: Final = 0.1
"""A commit without an answer for so long: others are asked who coordinates now."""
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

    async def call(self, key: int, version: int, body: bytes) -> bytes:
        """The body of the answer; raises Unanswered when the connection ends."""
        head = struct.pack(">hhih", key, version, 1, 5) + b"eager"
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        try:
            size = struct.unpack(">i", await self._reader.readexactly(4))[0]
            return (await self._reader.readexactly(size))[4:]
        except (OSError, asyncio.IncompleteReadError) as problem:
            raise Unanswered(str(problem)) from problem

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()


class EagerCommitter:
    """Commits growing offsets of one group without rest, until it is cancelled."""

    def __init__(self, addresses: Sequence[Address], group: str, topic: str) -> None:
        self.group = group
        self.acknowledged: list[tuple[float, Address]] = []
        """When the answer to each acknowledged commit came (monotonic), and from where."""
        self.codes: dict[int, int] = {}
        """How often a commit was refused with each code."""
        self._topic = topic
        self._addresses = list(addresses)
        self._numbers = itertools.count()
        self._tired: dict[Address, float] = {}

    async def run(self) -> None:
        """Commit for ever."""
        while True:
            try:
                await self._commit_at(await self.find())
            except Unanswered:
                pass  # whoever coordinates is found again
            await asyncio.sleep(RETRY_S)

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
        """The longest time without an acknowledged commit from ``fault`` on, in seconds.

        None until another node than the victim acknowledges, and has done so for SETTLED_S: where
        a node hands over before it stops, what counts comes after the first commit.
        """
        times = [(when, at) for when, at in self.acknowledged[-KEPT:] if when > fault]
        elsewhere = next((when for when, at in times if at != victim), None)
        if elsewhere is None or times[-1][0] < elsewhere + SETTLED_S:
            return None
        moments = [fault, *(when for when, _ in times)]
        return max(later - earlier for earlier, later in itertools.pairwise(moments))

    async def _ask(self, address: Address) -> Address | None:
        try:
            connection = await BrokerConnection.open(address)
        except Unanswered:
            self._tired[address] = time.monotonic() + REST_S
            return None
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await connection.call(FIND_COORDINATOR, 0, _text(self.group))
        except (Unanswered, TimeoutError):
            self._tired[address] = time.monotonic() + REST_S
            return None
        finally:
            connection.close()
        code, _, size = struct.unpack_from(">hih", answer)
        if code:
            return None
        return answer[8 : 8 + size].decode(), struct.unpack_from(">i", answer, 8 + size)[0]

    async def _commit_at(self, address: Address) -> None:
        """Commit there until it is refused, or until another node coordinates."""
        connection = await BrokerConnection.open(address)
        try:
            while (code := await self._commit(connection, address)) == 0:  # noqa: ASYNC110 - paced
                await asyncio.sleep(RETRY_S)
            self.codes[code] = self.codes.get(code, 0) + 1
        finally:
            connection.close()

    async def _commit(self, connection: BrokerConnection, address: Address) -> int:
        body = _commit_body(self.group, self._topic, next(self._numbers))
        answer = asyncio.ensure_future(connection.call(OFFSET_COMMIT, 2, body))
        other: asyncio.Future[Address] | None = None
        try:
            await asyncio.wait([answer], timeout=DOUBT_S)
            if not answer.done():
                other = asyncio.ensure_future(self.find(but=address))
                await asyncio.wait([answer, other], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Unanswered("another node coordinates")
            code: int = struct.unpack(">h", answer.result()[-2:])[0]
        finally:
            answer.cancel()
            if other is not None:
                other.cancel()
        if code == 0:
            self.acknowledged.append((time.monotonic(), address))
        return code


def _commit_body(group: str, topic: str, offset: int) -> bytes:
    """One offset of partition 0, from a client that is no member; the number is its metadata."""
    offsets = struct.pack(">iiq", 1, 0, offset) + _text(str(offset))
    nobody = struct.pack(">i", -1) + _text("") + struct.pack(">q", -1)
    return _text(group) + nobody + struct.pack(">i", 1) + _text(topic) + offsets


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
