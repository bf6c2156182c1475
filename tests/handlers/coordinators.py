"""Transaction coordinators as the produce path sees them."""

from __future__ import annotations

import asyncio

from barnabas.broker.handlers.transactional import TransactionalBatches
from barnabas.broker.verification.verifier import Question
from barnabas.protocol.errors import ErrorCode
from tests.replication.logs import NOW_MS


class FakeVerifier:
    """Notes every question; answers at once where ``codes`` says what, else when the test does."""

    def __init__(self, code: ErrorCode | None = None) -> None:
        self.code = code
        self.codes: dict[tuple[str, int], ErrorCode] = {}
        self.questions: list[Question] = []
        self.is_enabled = True
        self.asked = asyncio.Event()

    def ask(self, question: Question) -> None:
        self.questions.append(question)
        self.asked.set()
        if self.code is not None:
            self.answer(self.code)

    def answer(self, code: ErrorCode, place: int = -1) -> None:
        question = self.questions[place]
        question.on_answer(
            {partition: self.codes.get(partition, code) for partition in question.partitions}
        )


def judging(verifier: FakeVerifier | None = None) -> TransactionalBatches:
    """What judges batches of transactions; without a verifier no id has a coordinator."""
    asked = verifier or FakeVerifier(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return TransactionalBatches(asked, is_enabled=lambda: asked.is_enabled, now_ms=lambda: NOW_MS)
