"""The group coordinator's port to verification: may a transaction write to an offsets partition?

Source: docs/spec/transactions.md §4.1, §4.2 and §5.3.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.producers.verification_guards import (
    NO_SEQUENCE,
    NOTHING_TO_VERIFY,
)
from barnabas.coordinator.ports import OFFSETS_TOPIC, OnVerified
from barnabas.protocol.errors import ErrorCode, Refused

from .verifier import Codes, Question, Verifier


class OffsetsVerification:
    """Implements coordinator.ports.TransactionVerification."""

    def __init__(
        self,
        replicas: ReplicaManager,
        verifier: Verifier,
        *,
        is_enabled: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> None:
        """``is_enabled`` is asked each time: it may be switched while the node runs."""
        self._replicas = replicas
        self._verifier = verifier
        self._is_enabled = is_enabled
        self._now_ms = now_ms

    def verify(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        on_verified: OnVerified,
    ) -> None:
        """Call ``on_verified`` with a code and the guard that the append is to be given.

        The guard is taken before anything is asked: what ends the transaction meanwhile removes it.
        None where nothing is verified, since that is switched off.
        """
        if not self._is_enabled():
            on_verified(ErrorCode.NONE, None)
            return
        try:
            producers = self._replicas.led(OFFSETS_TOPIC, partition).log.producers
        except Refused:
            on_verified(ErrorCode.NOT_COORDINATOR, None)
            return
        guard = producers.begin_verification(
            transactional_id, producer_id, producer_epoch, NO_SEQUENCE, self._now_ms()
        )
        if guard is NOTHING_TO_VERIFY:
            on_verified(ErrorCode.NONE, guard)
            return
        asked = OFFSETS_TOPIC, partition

        def on_answer(codes: Codes) -> None:
            if codes[asked] is ErrorCode.NONE:
                producers.vouch(transactional_id, producer_id)
            on_verified(codes[asked], guard)

        self._verifier.ask(
            Question(transactional_id, producer_id, producer_epoch, (asked,), on_answer)
        )
