"""Blocks of producer ids, taken from ZooKeeper one by one: no two nodes hand out the same id.

Source: docs/spec/cluster.md §1.4 and §2.15.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.client.zookeeper.interface import BadVersion, ZooKeeper, ZooKeeperError
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

BLOCK_SIZE: Final = 1000
_ID_MAX: Final = (1 << 63) - 1
_ATTEMPTS: Final = 20


class ProducerIdManager:
    """Takes blocks for one node; what is left of a block when the node stops is lost."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int) -> None:
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._told_version = -1
        """Of the znode whose content was complained of."""

    async def take(self) -> range:
        """The ids of a block that is nobody else's; raises Refused(COORDINATOR_NOT_AVAILABLE).

        The block is written on condition that nobody wrote another meanwhile. A lost answer may
        have taken one: it is skipped, never shared.
        """
        for _ in range(_ATTEMPTS):
            try:
                data, stat = await self._zookeeper.get(znodes.PRODUCER_ID_BLOCK)
                start = self._start(data, stat.version)
                end = start + BLOCK_SIZE - 1
                block = znodes.ProducerIdBlock(broker=self._node_id, start=start, end=end)
                await self._zookeeper.set(znodes.PRODUCER_ID_BLOCK, block.to_json(), stat.version)
            except BadVersion:
                continue
            except ZooKeeperError as error:
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{error!r}") from error
            return range(start, end + 1)
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "every block was taken by others")

    def _start(self, data: bytes, version: int) -> int:
        """The first id that nobody has; raises Refused where that cannot be known."""
        try:
            last = znodes.ProducerIdBlock.from_json(data).end if data else -1
            if last > _ID_MAX - BLOCK_SIZE:
                raise ValueError(f"no ids are left after {last}")
        except ValueError as error:
            if version != self._told_version:
                self._told_version = version
                log.error("gave out no producer ids: %s: %s", znodes.PRODUCER_ID_BLOCK, error)
            reason = f"{znodes.PRODUCER_ID_BLOCK} cannot be read"
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason) from None
        return last + 1
