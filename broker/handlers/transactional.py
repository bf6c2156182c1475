"""Batches of transactions that clients produce: when each is appended, and what is asked before.

    batch of a transaction ─┬─ without a transactional id                       53
                            ├─ its transaction is open in the log, and its
                            │  coordinator was asked about this id once         appended
                            └─ else: its guard is taken, its coordinator asked  ("unverified")
                                       no                                       its code, translated
                                       yes, and the guard is still there        appended
                                       yes, but a marker came meanwhile         48

A transaction that nobody vouches for would never end, and hold back whoever reads committed
records. Source: docs/spec/transactions.md §5.2 and §5.3; docs/spec/log.md §7.2; KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.producers.verification_guards import (
    NOTHING_TO_VERIFY,
    VerificationGuard,
)
from barnabas.broker.verification.verifier import Codes, Question, Verifier
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records.produce_rules import Prepared

ABORTABLE_SINCE: Final = 11
"""From here a producer knows TRANSACTION_ABORTABLE (KIP-890)."""

ANSWERS: Final[Mapping[ErrorCode, ErrorCode]] = {
    # To producers of before KIP-890 these mean nothing that they could act on. NOT_ENOUGH_REPLICAS
    # has every one of them retry, without asking for metadata first.
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""What a producer is told for a coordinator's answer; others as they are."""


class NotVerified(Exception):  # noqa: N818 - reads as what happened
    """A coordinator has to be asked before a batch may be appended."""

    def __init__(self, prepared: Prepared, guard: VerificationGuard) -> None:
        super().__init__()
        self.prepared = prepared
        self.guard = guard


@dataclass(frozen=True, slots=True, eq=False)
class UnverifiedAppend:
    """A batch that waits for its coordinator's word, in memory of its own."""

    place: int
    """Where its result is among those of the request."""
    topic: str
    wanted: messages.Partition
    prepared: Prepared
    guard: VerificationGuard


class TransactionalBatches:
    """Judges batches of transactions before they are appended."""

    def __init__(
        self,
        verifier: Verifier,
        *,
        is_enabled: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> None:
        """``is_enabled`` is asked each time: it may be switched while the node runs."""
        self._verifier = verifier
        self._is_enabled = is_enabled
        self._now_ms = now_ms

    def check(
        self,
        transactional_id: str | None,
        prepared: Prepared,
        producers: ProducerStateManager,
        guard: VerificationGuard | None,
    ) -> None:
        """Judge a batch in the turn in which it is appended.

        ``guard`` is what its coordinator was asked with; None when it was not asked yet. Raises
        Refused: 53, 48, 45; or NotVerified.
        """
        if transactional_id is None:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction without an id"
            )
        if not self._is_enabled():
            return
        asked = prepared.producer_id, prepared.producer_epoch, prepared.base_sequence
        if guard is not None:
            producers.vouch(transactional_id, prepared.producer_id)
            producers.check_verified(*asked, guard)
            return
        guard = producers.begin_verification(transactional_id, *asked, self._now_ms())
        if guard is not NOTHING_TO_VERIFY:
            raise NotVerified(prepared, guard)

    async def verify(
        self, transactional_id: str, appends: Collection[UnverifiedAppend], version: int
    ) -> Mapping[UnverifiedAppend, Refused | None]:
        """Ask the coordinator about all batches of a request; None for each that may be appended.

        All are of one producer: see :func:`check_one_producer`.
        """
        prepared = next(iter(appends)).prepared
        answered: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()

        def answer(codes: Codes) -> None:
            if not answered.done():  # whoever asked may have left
                answered.set_result(codes)

        self._verifier.ask(
            Question(
                transactional_id,
                prepared.producer_id,
                prepared.producer_epoch,
                [(one.topic, one.wanted.index) for one in appends],
                answer,
            )
        )
        codes = await answered
        return {one: _told(codes[one.topic, one.wanted.index], version) for one in appends}


def check_one_producer(batches: Iterable[Prepared]) -> None:
    """Raises Refused(49) for transactional batches of two producers, or epochs, in one request."""
    if len({(one.producer_id, one.producer_epoch) for one in batches if one.is_transactional}) > 1:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of several producers in a transaction"
        )


def _told(code: ErrorCode, version: int) -> Refused | None:
    if code is ErrorCode.NONE:
        return None
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return Refused(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    return Refused(ANSWERS.get(code, code))
