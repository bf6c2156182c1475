"""A committer that finds its group's coordinator again within milliseconds.

Source: Kafka 3.9's OffsetCommit v2.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Sequence

from benchmarks.eager_client import (
    RETRY_S,
    Address,
    BrokerConnection,
    EagerClient,
    Unanswered,
    request,
    text,
)

OFFSET_COMMIT = 8


class EagerCommitter(EagerClient):
    """Commits growing offsets of one group without rest, until it is cancelled."""

    KEY_TYPE = 0

    def __init__(self, addresses: Sequence[Address], name: str, topic: str) -> None:
        super().__init__(addresses, name)
        self._topic = topic
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Commit for ever."""
        while True:
            try:
                await self._commit_at(await self.find())
            except Unanswered:
                pass  # whoever coordinates is found again
            await asyncio.sleep(RETRY_S)

    async def _commit_at(self, address: Address) -> None:
        """Commit there until it is refused, or until another node coordinates."""
        connection = await BrokerConnection.open(address)
        try:
            while (code := await self._commit(connection, address)) == 0:  # noqa: ASYNC110 - paced
                await asyncio.sleep(RETRY_S)
            self.refuse(code)
        finally:
            connection.close()

    async def _commit(self, connection: BrokerConnection, address: Address) -> int:
        body = _commit_body(self.name, self._topic, next(self._numbers))
        frame = request(OFFSET_COMMIT, 2, body)
        answer = await self.call_coordinator(connection, address, frame)
        code: int = struct.unpack(">h", answer[-2:])[0]
        if code == 0:
            self.acknowledge(address)
        return code


def _commit_body(group: str, topic: str, offset: int) -> bytes:
    """One offset of partition 0, from a client that is no member; the number is its metadata."""
    offsets = struct.pack(">iiq", 1, 0, offset) + text(str(offset))
    nobody = struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    return text(group) + nobody + struct.pack(">i", 1) + text(topic) + offsets
