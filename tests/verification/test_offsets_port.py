"""TxnOffsetCommit's batches and their guards: docs/spec/transactions.md §4.2 and §5.3."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.verification.offsets_port import OffsetsVerification
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker
from tests.handlers.conftest import context, shelf
from tests.handlers.conftest import replicas as replicas
from tests.handlers.coordinators import FakeVerifier
from tests.replication.logs import NOW_MS, follow, lead
from tests.replication.test_last_stable_offset import append, marker

__all__ = ["context", "shelf"]

PID = 7


class Committing:
    """What a TxnOffsetCommit does: verify, then append with the guard."""

    def __init__(self, replicas: ReplicaManager) -> None:
        lead(replicas, OFFSETS_TOPIC)
        self.verifier = FakeVerifier()
        self.log = StateLogPort(replicas, OFFSETS_TOPIC, asyncio.get_running_loop())
        self.port = OffsetsVerification(
            replicas,
            self.verifier,
            is_enabled=lambda: self.verifier.is_enabled,
            now_ms=lambda: NOW_MS,
        )

    def verify(self, epoch: int = 0, name: str = "mine") -> list[tuple[ErrorCode, Any]]:
        answers: list[tuple[ErrorCode, Any]] = []
        self.port.verify(0, name, PID, epoch, lambda code, guard: answers.append((code, guard)))
        return answers

    def append(self, guard: object | None) -> ErrorCode:
        batch = build_batch(
            [(b"key", b"value")],
            timestamp_ms=NOW_MS,
            producer_id=PID,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        codes: list[ErrorCode] = []
        self.log.append(
            0,
            batch,
            leader_epoch=0,
            acks=-1,
            timeout_ms=1000,
            on_appended=lambda code, offset: codes.append(code),
            guard=guard,
        )
        return codes[0]


@pytest.fixture
async def committing(replicas: ReplicaManager) -> Committing:
    return Committing(replicas)


async def test_an_offsets_partition_is_verified_once_for_a_transaction(
    committing: Committing,
) -> None:
    first = committing.verify()
    [question] = committing.verifier.questions
    assert list(question.partitions) == [(OFFSETS_TOPIC, 0)]
    committing.verifier.answer(ErrorCode.NONE)
    [(code, guard)] = first
    assert (code, committing.append(guard)) == (0, 0)
    [(code, guard)] = committing.verify()
    assert (code, committing.append(guard)) == (0, 0)
    assert len(committing.verifier.questions) == 1


async def test_offsets_under_another_id_are_asked_about(committing: Committing) -> None:
    """T5.11: the producer id of an open transaction is easily guessed."""
    committing.verifier.code = ErrorCode.NONE
    assert committing.append(committing.verify()[0][1]) == 0
    committing.verifier.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    [(code, _guard)] = committing.verify(name="another's")
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    [(code, guard)] = committing.verify()
    assert (code, committing.append(guard)) == (0, 0)
    assert len(committing.verifier.questions) == 2


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_marker_between_check_and_append_keeps_the_commit_out(
    committing: Committing, replicas: ReplicaManager, is_open: bool
) -> None:
    """T8.10: KAFKA-15784."""
    if is_open:
        committing.verifier.code = ErrorCode.NONE
        assert committing.append(committing.verify()[0][1]) == 0
    answers = committing.verify()
    if not is_open:
        committing.verifier.answer(ErrorCode.NONE)
    append(replicas.led(OFFSETS_TOPIC, 0), marker(PID, Marker.ABORT))
    assert committing.append(answers[0][1]) == ErrorCode.INVALID_TXN_STATE


async def test_codes_are_given_raw(committing: Committing, replicas: ReplicaManager) -> None:
    for code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.PRODUCER_FENCED):
        committing.verifier.code = code
        assert committing.verify()[0][0] is code
    follow(replicas, OFFSETS_TOPIC)
    assert committing.verify()[0][0] is ErrorCode.NOT_COORDINATOR


async def test_nothing_is_verified_where_that_is_switched_off(committing: Committing) -> None:
    committing.verifier.is_enabled = False
    [(code, guard)] = committing.verify()
    assert (code, guard, committing.append(guard)) == (0, None, 0)
