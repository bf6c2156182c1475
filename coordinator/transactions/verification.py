"""Whether partitions belong to a transaction: what a leader asks before its first batch of one.

Source: docs/spec/transactions.md §2.7 (KIP-890). Nothing is changed, and a pending transition is
not looked at: its outcome reaches the partition as a marker, which ends what was vouched for
(KAFKA-14904).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from barnabas.protocol.errors import ErrorCode

from .gate import Gate
from .transaction import TopicPartition, Transaction

Results = Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], None]
"""A code for all partitions, or NONE and one for each that has another."""


def identity_problem(
    transaction: Transaction | None, producer_id: int, producer_epoch: int
) -> ErrorCode:
    """Why a request does not come from the present producer of an id; NONE when it does.

    A higher epoch than the known one is none either: it was never given by this coordinator.
    """
    if transaction is None or transaction.metadata.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.metadata.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


class Verification:
    """Serves the verifying form of AddPartitionsToTxn."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        on_results: Results,
    ) -> None:
        """Say of each partition whether the open transaction has it."""

        def enter(code: ErrorCode, transaction: Transaction | None) -> None:
            code = code or identity_problem(transaction, producer_id, producer_epoch)
            if not code and transaction is not None:
                code = transaction.rules.verify
            if code or transaction is None:
                on_results(code, {})  # of all, whether they are part of it or not
                return
            known = set(transaction.metadata.partitions)
            missing = ErrorCode.TRANSACTION_ABORTABLE
            on_results(code, {one: missing for one in partitions if one not in known})

        self._gate.enter(transactional_id, enter)
