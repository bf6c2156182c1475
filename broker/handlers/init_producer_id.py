"""InitProducerId: numbers for idempotent producers, from a block that this node owns.

Source: docs/spec/log.md §7.5; docs/spec/cluster.md §1.6 (``/latest_producer_id_block``, 1000 ids).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse

from .call import Call, Handler

log = logging.getLogger(__name__)

NextBlock = Callable[[], Awaitable[range]]
"""Takes the next block of ids from the cluster; raises Refused while it cannot."""


class InitProducerIdHandler:
    """Hands out each id once; a new block is fetched when the last id is gone."""

    def __init__(self, next_block: NextBlock) -> None:
        self._next_block = next_block
        self._block = iter(range(0))
        self._turn = asyncio.Lock()

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.INIT_PRODUCER_ID: self.init_producer_id}

    async def init_producer_id(self, call: Call) -> InitProducerIdResponse:
        """A fresh id at epoch 0.

        Transactions are not served: UNSUPPORTED_VERSION ends such a producer at once, while
        "no coordinator yet" would have it ask until its patience is over.
        """
        if call.request.transactional_id is not None:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION)
        return InitProducerIdResponse(producer_id=await self._next(), producer_epoch=0)

    async def _next(self) -> int:
        async with self._turn:
            for producer_id in self._block:
                return producer_id
            block = await self._next_block()
            log.info("took a block of producer ids first=%d last=%d", block[0], block[-1])
            self._block = iter(block)
            return next(self._block)
