"""The APIs of transactions: handed to the coordinators, answered when they say so.

Source: docs/spec/transactions.md §2 and §4.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.protocol.api import ApiKey

from .call import Answer, Call, Handler
from .groups import adapted, waiting


class TransactionsHandler:
    """Adapts the coordinators' methods to calls that may be answered later."""

    def __init__(self, transactions: TransactionCoordinator, groups: GroupCoordinator) -> None:
        self._transactions = transactions
        self._groups = groups

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        serve = self._transactions
        return {
            ApiKey.INIT_PRODUCER_ID: unless_left(adapted(serve.init_producer_id)),
            ApiKey.ADD_PARTITIONS_TO_TXN: unless_left(adapted(serve.add_partitions_to_txn)),
            ApiKey.ADD_OFFSETS_TO_TXN: unless_left(adapted(serve.add_offsets_to_txn)),
            ApiKey.END_TXN: unless_left(adapted(serve.end_txn)),
            ApiKey.TXN_OFFSET_COMMIT: unless_left(adapted(self._groups.txn_offset_commit)),
            # A short request may have an answer of 100,000 ids.
            ApiKey.DESCRIBE_TRANSACTIONS: waiting(adapted(serve.describe_transactions)),
            ApiKey.LIST_TRANSACTIONS: waiting(adapted(serve.list_transactions)),
        }


def unless_left(handler: Handler) -> Handler:
    """The same, but nothing is done for a peer that has closed its connection.

    It has asked again on another one, and may have begun its next transaction, under the same
    epoch: what is left of the former would end that one, or put offsets into it (KAFKA-18957). A
    late InitProducerId would fence it, and late partitions would begin a transaction that nobody
    ends: its time-out fences it as well.
    """

    def handle(call: Call) -> Answer:
        return None if call.peer.has_left() else handler(call)

    return handle
