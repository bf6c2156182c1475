"""Which batches of transactions are taken from clients while nobody here coordinates them.

A transaction that began elsewhere, in a log that Kafka wrote, may go on; a new one would never
end, and hold back whoever reads committed records. Source: docs/spec/log.md §7.2 and §7.5;
KIP-890 (a partition takes no batch of a transaction that no coordinator vouches for).
"""

from __future__ import annotations

from barnabas.broker.storage.producers.ongoing_transactions import NO_TRANSACTION
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.validate import Prepared


def check_transaction(
    transactional_id: str | None, prepared: Prepared, producers: ProducerStateManager
) -> None:
    """Raises Refused: 53 for a producer without a transactional id, 48 outside a transaction."""
    if transactional_id is None:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction without an id"
        )
    producer = producers.get(prepared.producer_id)
    if (
        producer is None
        or producer.transaction_start == NO_TRANSACTION
        or producer.epoch != prepared.producer_epoch
    ):
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {prepared.producer_id} is in no transaction that is known here",
        )
