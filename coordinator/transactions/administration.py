"""What tools ask: DescribeTransactions and ListTransactions.

Source: docs/spec/transactions.md §2.8 (KIP-664, KIP-994). Neither waits for a load nor for the
node's lease: what they show may be a little old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from barnabas.coordinator.cooperative import CooperativeScheduler, Steps, Turn
from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_transactions as describing
from barnabas.protocol.messages import list_transactions as listing
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from .ports import TransactionTopics
from .transaction import Metadata, Transaction
from .transaction_record import by_topic, id_of, metadata_of
from .transaction_registry import TransactionRegistry
from .transaction_state import TransactionState

STATES: Final = {state.value: state for state in TransactionState}
ANY_DURATION: Final = -1

Known: TypeAlias = tuple[str, Metadata]


class TransactionAdministration:
    """Serves DescribeTransactions and ListTransactions."""

    def __init__(
        self,
        registry: TransactionRegistry,
        topics: TransactionTopics,
        scheduler: CooperativeScheduler,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._topics = topics
        self._scheduler = scheduler
        self._now_ms = now_ms

    # -- DescribeTransactions --------------------------------------------------------------------

    def describe_transactions(
        self,
        request: DescribeTransactionsRequest,
        _version: int,
        _caller: Caller,
        respond: Callable[[DescribeTransactionsResponse], None],
    ) -> None:
        """Answer for each id by itself."""
        found: list[describing.Transaction] = []
        self._scheduler.run(
            request.transactional_ids,
            lambda name: found.append(self._describe(name)),
            lambda: respond(DescribeTransactionsResponse(transaction_states=found)),
        )

    def _describe(self, transactional_id: str) -> describing.Transaction:
        registry = self._registry
        if not registry.is_active:
            return _undescribed(transactional_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            return _undescribed(transactional_id, ErrorCode.INVALID_REQUEST)
        code = registry.ownership_problem(transactional_id)
        if code:
            return _undescribed(transactional_id, code)
        transaction = registry.find(transactional_id)
        if transaction is None or transaction.pending is TransactionState.DEAD:
            return _undescribed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return _described(transaction)

    # -- ListTransactions ------------------------------------------------------------------------

    def list_transactions(
        self,
        request: ListTransactionsRequest,
        _version: int,
        _caller: Caller,
        respond: Callable[[ListTransactionsResponse], None],
    ) -> None:
        """Answer with the ids of this node that pass every filter.

        None while any partition loads: a tool that looks for hanging transactions would take the
        producers of the others for unknown. In a new cluster no id was ever used and so there are
        none, as Kafka says.
        """
        code = ErrorCode.NONE
        if not self._registry.is_active:
            if not self._topics.lacks_transaction_topic():
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif self._registry.is_loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if code:
            respond(ListTransactionsResponse(error_code=code))
        else:
            self._scheduler.drive(self._list_in_turns(request, respond))

    def _list_in_turns(
        self,
        request: ListTransactionsRequest,
        respond: Callable[[ListTransactionsResponse], None],
    ) -> Steps[None]:
        states = {STATES[name] for name in request.state_filters if name in STATES}
        producer_ids = set(request.producer_id_filters)
        duration_ms, now_ms = request.duration_filter, self._now_ms()
        found: list[listing.Transaction] = []
        turn = Turn()
        for known in self._known():
            if turn.is_over():
                yield
            if known is None:
                continue
            transactional_id, metadata = known
            if request.state_filters and metadata.state not in states:
                continue
            if producer_ids and metadata.producer_id not in producer_ids:
                continue
            # An id that never had a transaction has start -1, and so passes every duration.
            if duration_ms > ANY_DURATION and now_ms - metadata.started_ms <= duration_ms:
                continue
            found.append(
                listing.Transaction(
                    transactional_id=transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.value,
                )
            )
        unknown = [name for name in request.state_filters if name not in STATES]
        respond(ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found))

    def _known(self) -> Iterator[Known | None]:
        """Every id here, each as it is by then; None for one that is gone meanwhile."""
        for term in self._registry.terms():
            keys, transactions = list(term.stored), list(term.transactions.values())
            for key in keys:
                value = term.stored.get(key)
                if value is not None:
                    yield id_of(key), metadata_of(value)
                else:  # somebody asked for it meanwhile, or the term is over
                    yield _if_kept(term.transactions.get(id_of(key)))
            for transaction in transactions:
                yield _if_kept(transaction)


def _if_kept(transaction: Transaction | None) -> Known | None:
    if transaction is None or not transaction.term.keeps(transaction):
        return None
    return transaction.transactional_id, transaction.metadata


def _described(transaction: Transaction) -> describing.Transaction:
    metadata, completion = transaction.metadata, transaction.completion
    partitions = metadata.partitions if completion is None else tuple(completion.unwritten)
    return describing.Transaction(
        transactional_id=transaction.transactional_id,
        transaction_state=metadata.state.value,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.started_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            describing.Topic(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(partitions)
        ],
    )


def _undescribed(transactional_id: str, code: ErrorCode) -> describing.Transaction:
    return describing.Transaction(error_code=code, transactional_id=transactional_id)
