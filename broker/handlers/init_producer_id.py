"""InitProducerId: numbers for idempotent producers, from a block that this node owns.

Source: docs/spec/log.md §7.5; docs/spec/transactions.md §2.4 and §3.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.coordinator.transactions.ports import ProducerIds
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse

from .call import Answer, Call, Handler, PendingResponse

NO_ID: Final = -1


class InitProducerIdHandler:
    """Hands out each id once."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.INIT_PRODUCER_ID: self.init_producer_id}

    def init_producer_id(self, call: Call) -> Answer:
        """A fresh id at epoch 0.

        Transactions are not served: UNSUPPORTED_VERSION ends such a producer at once, while
        "no coordinator yet" would have it ask until its patience is over.
        """
        if call.request.transactional_id is not None:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION)
        pending = PendingResponse()

        def respond(producer_id: int, code: ErrorCode) -> None:
            epoch = NO_ID if code else 0
            pending.respond(
                InitProducerIdResponse(
                    error_code=code, producer_id=producer_id, producer_epoch=epoch
                )
            )

        self._producer_ids.next_id(respond)
        return pending
