"""What a transactional producer does about each error code of each request, as one table.

Source: docs/spec/transactions.md §7; KIP-98, KIP-360 (bumps), KIP-890 (TRANSACTION_ABORTABLE).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from barnabas.client.errors import KafkaError
from barnabas.client.retry import may_succeed_later
from barnabas.protocol.errors import ErrorCode


class Request(Enum):
    """The requests of a transaction."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"
    PRODUCE = "Produce"


class Treatment(Enum):
    """The way on after an error code."""

    RETRY = "send it again, later"
    FIND = "find the coordinator again, then send it again"
    RETRY_BEHIND_A_FAILURE = "send it again if an earlier batch failed, else as ABORT_AND_BUMP"
    ABORT = "the transaction must be aborted"
    ABORT_AND_BUMP = "the transaction must be aborted, and the producer needs another epoch"
    FAIL = "the producer cannot go on"


RETRY: Final = Treatment.RETRY
FIND: Final = Treatment.FIND
ABORT: Final = Treatment.ABORT
BUMP: Final = Treatment.ABORT_AND_BUMP
FAIL: Final = Treatment.FAIL
BEHIND: Final = Treatment.RETRY_BEHIND_A_FAILURE

_COLUMNS: Final = (
    Request.INIT_PRODUCER_ID,
    Request.ADD_PARTITIONS,
    Request.ADD_OFFSETS,
    Request.TXN_OFFSET_COMMIT,
    Request.END_TXN,
    Request.PRODUCE,
)
_E = ErrorCode
____ = None
"""As other codes."""
_ROWS: Final[Mapping[tuple[ErrorCode, ...], tuple[Treatment | None, ...]]] = {
    (_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR): (FIND, FIND, FIND, FIND, FIND, RETRY),
    (_E.REQUEST_TIMED_OUT,): (____, ____, ____, FIND, ____, ____),
    (_E.INVALID_PRODUCER_EPOCH,): (FAIL, FAIL, FAIL, FAIL, FAIL, BUMP),
    (_E.PRODUCER_FENCED,): (FAIL, FAIL, FAIL, FAIL, FAIL, FAIL),
    (_E.INVALID_TXN_STATE,): (FAIL, FAIL, FAIL, FAIL, FAIL, BUMP),
    (_E.INVALID_PRODUCER_ID_MAPPING, _E.UNKNOWN_PRODUCER_ID): (FAIL, BUMP, BUMP, FAIL, BUMP, BUMP),
    (_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,): (ABORT, FAIL, FAIL, FAIL, FAIL, FAIL),
    (_E.GROUP_AUTHORIZATION_FAILED,): (____, ____, ABORT, ABORT, ____, ____),
    (_E.ILLEGAL_GENERATION,): (____, ____, ____, ABORT, ____, ____),
    (_E.UNKNOWN_MEMBER_ID,): (____, ____, ____, ABORT, ____, ____),
    (_E.FENCED_INSTANCE_ID,): (____, ____, ____, ABORT, ____, ____),
    (_E.TRANSACTION_ABORTABLE,): (ABORT, ABORT, ABORT, ABORT, ABORT, BUMP),
    (_E.OUT_OF_ORDER_SEQUENCE_NUMBER,): (____, ____, ____, ____, ____, BEHIND),
}
"""By code, one column each of ``_COLUMNS``."""

_OTHERS: Final = dict(zip(_COLUMNS, (FAIL, ABORT, FAIL, FAIL, FAIL, BUMP), strict=True))
"""Codes that are neither listed nor retriable, unknown ones included."""

_FIND_COORDINATOR: Final = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ABORT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FAIL,
}

TREATMENTS: Final[Mapping[Request, Mapping[ErrorCode, Treatment]]] = {
    Request.FIND_COORDINATOR: _FIND_COORDINATOR,
    **{
        request: {
            code: treatment
            for codes, row in _ROWS.items()
            if (treatment := row[column]) is not None
            for code in codes
        }
        for column, request in enumerate(_COLUMNS)
    },
}
"""The listed codes of each request; :func:`treatment_of` knows the others."""

_SEVERITY: Final = (FAIL, BUMP, ABORT, FIND, RETRY, BEHIND)


def treatment_of(request: Request, error: KafkaError) -> Treatment:
    """What to do about an answer to ``request`` with this code."""
    listed = TREATMENTS[request].get(error.code)
    if listed is not None:
        return listed
    if may_succeed_later(error):
        return RETRY
    return _OTHERS.get(request, FAIL)


def decisive(request: Request, codes: Iterable[ErrorCode]) -> ErrorCode:
    """The code that decides about an answer with one code a partition; NONE when all are.

    The worst counts, but OPERATION_NOT_ATTEMPTED never beside another: it says that a neighbour
    failed, and if that one may succeed later, so may this one.
    """
    present = {code for code in codes if code}
    if len(present) > 1:
        present.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return min(
        sorted(present),
        key=lambda code: _SEVERITY.index(treatment_of(request, KafkaError(code))),
        default=ErrorCode.NONE,
    )
