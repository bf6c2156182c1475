"""InitProducerId: a producer begins, or begins anew, under an epoch that fences its predecessors.

Source: docs/spec/transactions.md §2.4 (KIP-98, KIP-360). A transaction that is still open under the
id is aborted first, under an epoch that nobody is given; the retry of the producer, who is told 51
meanwhile, gets the one after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from .config import TransactionConfig
from .gate import Gate
from .ports import ProducerIds
from .transaction import NO_EPOCH, NO_PRODUCER_ID, Identity, Metadata, Transaction
from .transaction_end import EndCause, TransactionEnd
from .transaction_registry import TransactionRegistry
from .transaction_state import PREPARED, TransactionState
from .transitions import Transitions

PRODUCER_FENCED_SINCE: Final = 4
"""From this version on a fenced producer is told 90; before, 47 (KIP-588)."""

Respond = Callable[[InitProducerIdResponse], None]


class _Asked:
    """One request, until it is answered."""

    __slots__ = ("fresh_producer_id", "request", "respond", "version")

    def __init__(self, request: InitProducerIdRequest, version: int, respond: Respond) -> None:
        self.request = request
        self.version = version
        self.respond = respond
        self.fresh_producer_id = NO_PRODUCER_ID
        """Taken for it, in case that it needs one."""

    def refuse(self, code: ErrorCode) -> None:
        """Answer with a code."""
        if code is ErrorCode.PRODUCER_FENCED and self.version < PRODUCER_FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        self.respond(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))

    def grant(self, producer_id: int, producer_epoch: int) -> None:
        """Answer with an identity."""
        self.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch))


class InitProducerIdHandler:
    """Serves InitProducerId, for producers with and without a transactional id."""

    def __init__(
        self,
        registry: TransactionRegistry,
        gate: Gate,
        producer_ids: ProducerIds,
        transitions: Transitions,
        transaction_end: TransactionEnd,
        config: TransactionConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._gate = gate
        self._producer_ids = producer_ids
        self._transitions = transitions
        self._end = transaction_end
        self._config = config
        self._now_ms = now_ms

    def init_producer_id(
        self, request: InitProducerIdRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Give a producer id and an epoch; both are -1 beside an error."""
        asked = _Asked(request, version, respond)
        names_id = request.producer_id != NO_PRODUCER_ID
        names_epoch = request.producer_epoch != NO_EPOCH
        if names_id != names_epoch:
            asked.refuse(ErrorCode.INVALID_REQUEST)
        elif request.transactional_id is None:
            self._producer_ids.next_id(lambda number, code: _give_plain(asked, number, code))
        elif not request.transactional_id:
            asked.refuse(ErrorCode.INVALID_REQUEST)
        elif not 0 < request.transaction_timeout_ms <= self._config.timeout_max_ms:
            asked.refuse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        else:
            self._enter(asked, request.transactional_id)

    def _enter(self, asked: _Asked, transactional_id: str) -> None:
        """Look the id up: at first, and again once a producer id was taken for it."""

        def enter(code: ErrorCode, transaction: Transaction | None) -> None:
            if code:
                asked.refuse(code)
            elif transaction is not None:
                self._proceed(asked, transaction)
            elif asked.fresh_producer_id == NO_PRODUCER_ID:
                self._take_producer_id(asked, transactional_id)
            else:
                self._proceed(asked, self._create(asked, transactional_id))

        self._gate.enter(transactional_id, enter)

    def _take_producer_id(self, asked: _Asked, transactional_id: str) -> None:
        """Then begin again: the partition may be led elsewhere by then, or the id be known."""

        def on_id(producer_id: int, code: ErrorCode) -> None:
            if code:
                asked.refuse(code)
                return
            asked.fresh_producer_id = producer_id
            self._enter(asked, transactional_id)

        self._producer_ids.next_id(on_id)

    def _create(self, asked: _Asked, transactional_id: str) -> Transaction:
        """An id that is new, or has expired; it comes into the log with its first epoch."""
        term = self._registry.term_of(transactional_id)
        metadata = Metadata(
            producer_id=asked.fresh_producer_id,
            producer_epoch=NO_EPOCH,
            timeout_ms=asked.request.transaction_timeout_ms,
            state=TransactionState.EMPTY,
            updated_ms=self._now_ms(),
        )
        transaction = Transaction(transactional_id, metadata, term)
        term.add(transaction)
        return transaction

    def _proceed(self, asked: _Asked, transaction: Transaction) -> None:
        request = asked.request
        if transaction.pending is not None or transaction.state in PREPARED:
            asked.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif request.producer_id != NO_PRODUCER_ID and not transaction.knows_producer(
            request.producer_id, request.producer_epoch
        ):
            asked.refuse(ErrorCode.PRODUCER_FENCED)
        elif transaction.state is TransactionState.ONGOING and not transaction.may_be_of(
            request.producer_id, request.producer_epoch
        ):
            # Kafka aborts the open transaction first, and then fences this one all the same: a
            # producer that was replaced could end its successor's transactions.
            asked.refuse(ErrorCode.PRODUCER_FENCED)
        elif transaction.state is TransactionState.ONGOING:
            # 51 also when the abort is committed: its markers are to be written first.
            self._end.decide(
                transaction,
                EndCause.FENCED,
                lambda code: asked.refuse(code or ErrorCode.CONCURRENT_TRANSACTIONS),
            )
        elif (
            transaction.needs_producer_id(request.producer_epoch)
            and asked.fresh_producer_id == NO_PRODUCER_ID
        ):
            self._take_producer_id(asked, transaction.transactional_id)
        else:
            self._give(asked, transaction)

    def _give(self, asked: _Asked, transaction: Transaction) -> None:
        try:
            identity = transaction.next_identity(
                asked.request.producer_epoch, asked.fresh_producer_id
            )
        except Refused as refusal:
            asked.refuse(refusal.code)
            return
        metadata = transaction.initialised(
            identity, asked.request.transaction_timeout_ms, self._now_ms()
        )
        self._transitions.write(
            transaction,
            TransactionState.EMPTY,
            metadata,
            lambda code: _answer(asked, identity, code),
            identity,
        )


def _give_plain(asked: _Asked, producer_id: int, code: ErrorCode) -> None:
    if code:
        asked.refuse(code)
    else:
        asked.grant(producer_id, 0)


def _answer(asked: _Asked, identity: Identity, code: ErrorCode) -> None:
    if code:
        asked.refuse(code)
    else:
        asked.grant(identity.producer_id, identity.producer_epoch)
