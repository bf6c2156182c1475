"""What keeps a transaction that is over from being begun again by a late batch (KIP-890).

Before the first batch of a transaction is appended, its coordinator is asked whether the partition
is part of it. Between that question and the append the transaction may end. So whoever asks takes
the producer's guard first, and appends only while that guard is still there:

    produce       guard of producer 7 ── asks the coordinator ── "yes" ── the same guard? append
    marker of 7                                     removes the guard ──┘ another, none?  48

A guard is in memory only: after a restart there is none, and every question has to be asked anew.
Source: docs/spec/transactions.md §5.3; KAFKA-14402.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.errors import ErrorCode, Refused

NO_SEQUENCE: Final = -1
"""Coordinators' batches are not numbered."""


class VerificationGuard:
    """One question about a producer, shared by all its requests until the guard is removed.

    It has no fields of its own that decide: which object it is, is what is compared.
    """

    __slots__ = ("created_ms", "epoch", "lowest_sequence")

    def __init__(self, created_ms: int, epoch: int, lowest_sequence: int) -> None:
        self.created_ms = created_ms
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """The lowest base sequence that came under ``epoch`` since there is this guard."""


NOTHING_TO_VERIFY: Final = VerificationGuard(0, -1, NO_SEQUENCE)
"""For a batch of a transaction that is open in the log already: no coordinator need be asked."""


class VerificationGuards:
    """The guards of one partition by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def take(
        self, producer_id: int, epoch: int, base_sequence: int, now_ms: int
    ) -> VerificationGuard:
        """The producer's guard, made when there is none; notes what is about to be appended."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard(now_ms, epoch, base_sequence)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, base_sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, base_sequence)
        return guard

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, guard: VerificationGuard
    ) -> None:
        """Judge what is about to be appended in this turn of the loop. Raises Refused.

        48 when a batch or a marker of the producer came since ``guard`` was taken; 45 for a batch
        that would overtake one that came before it and was not appended: of a producer that is
        unknown here any sequence is taken, so that nothing else would find the gap.
        """
        if self._guards.get(producer_id) is not guard:
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} ended meanwhile, or was not verified",
            )
        if epoch == guard.epoch and base_sequence > guard.lowest_sequence:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent {guard.lowest_sequence} before, which is not here",
            )

    def remove(self, producer_id: int) -> None:
        """A transactional batch or a marker of the producer is in the log."""
        self._guards.pop(producer_id, None)

    def expire(self, now_ms: int, idle_ms: int) -> None:
        """Remove the guards that nobody has used for so long."""
        self._guards = {
            producer_id: guard
            for producer_id, guard in self._guards.items()
            if now_ms - guard.created_ms <= idle_ms
        }

    def clear(self) -> None:
        """Remove all: markers may have been skipped."""
        self._guards.clear()
