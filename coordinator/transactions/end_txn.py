"""EndTxn: a producer commits or aborts its transaction.

Source: docs/spec/transactions.md §2.6 (KIP-98). The answer is given when the decision is committed,
not when the markers are written: a reader of committed records may see them a little later, and the
producer's next request is told 51 until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

from .gate import Gate
from .transaction import Transaction
from .transaction_end import EndCause, TransactionEnd
from .verification import identity_problem

PRODUCER_FENCED_SINCE: Final = 2
"""From this version on a fenced producer is told 90; before, 47 (KIP-588)."""

Respond = Callable[[EndTxnResponse], None]


class EndTxnHandler:
    """Serves EndTxn."""

    def __init__(self, gate: Gate, transaction_end: TransactionEnd) -> None:
        self._gate = gate
        self._end = transaction_end

    def end_txn(
        self, request: EndTxnRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Decide how the transaction ends."""

        def answer(code: ErrorCode) -> None:
            if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            respond(EndTxnResponse(error_code=code))

        def enter(code: ErrorCode, transaction: Transaction | None) -> None:
            code = code or identity_problem(
                transaction, request.producer_id, request.producer_epoch
            )
            if code or transaction is None:
                answer(code)
                return
            rules = transaction.rules
            answered = rules.commit if request.committed else rules.abort
            if transaction.pending is not None:
                answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            elif answered is not None:
                answer(answered)
            else:
                cause = EndCause.COMMITTED if request.committed else EndCause.ABORTED
                self._end.decide(transaction, cause, answer)

        if not request.transactional_id:
            answer(ErrorCode.INVALID_REQUEST)
        else:
            self._gate.enter(request.transactional_id, enter)
