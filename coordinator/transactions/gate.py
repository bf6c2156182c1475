"""What every request about an id passes first: is its partition served here, and may it be told?

Source: docs/spec/transactions.md §10.2 and §10.3; docs/spec/coordinator.md §1.4.

- While the partition loads, a request waits for up to :data:`HOLD_S` before it is told so. A
  takeover takes less than that, and librdkafka comes back only after half a second. Requests go on
  in the order in which they came, before any that comes later: what a client sent last counts.
- Without the node's lease nothing is answered out of memory. Another node may have taken over, and
  what is known here of an id may be over: "yes, it is in the transaction" would let a batch in
  behind the marker, and "fenced" would end a producer that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from barnabas.protocol.errors import ErrorCode

from .transaction import Transaction
from .transaction_registry import TransactionRegistry

HOLD_S: Final = 1.0
"""How long a request waits for its partition to be loaded."""

Enter: TypeAlias = Callable[[ErrorCode, Transaction | None], None]
"""Called once: with a code, or with NONE and what is kept for the id, None for an unknown one."""


class _Held:
    """A request whose partition is being loaded."""

    __slots__ = ("enter", "timer", "transactional_id")

    timer: asyncio.TimerHandle
    """When it is told that its partition is still being loaded."""

    def __init__(self, transactional_id: str, enter: Enter) -> None:
        self.transactional_id = transactional_id
        self.enter = enter


class Gate:
    """Lets requests pass, holds them or turns them away."""

    def __init__(
        self,
        registry: TransactionRegistry,
        lease_problem: Callable[[], ErrorCode],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._registry = registry
        self._lease_problem = lease_problem
        self._loop = loop
        self._held: dict[int, dict[_Held, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def enter(self, transactional_id: str, enter: Enter) -> None:
        """Call ``enter`` once, now or when the partition of the id is loaded."""
        code = self._registry.ownership_problem(transactional_id)
        if code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._decide(code, transactional_id, enter)
            return
        partition = self._registry.partition_of(transactional_id)
        held = _Held(transactional_id, enter)
        held.timer = self._loop.call_later(HOLD_S, self._give_up, partition, held)
        self._held.setdefault(partition, {})[held] = None

    def retry(self, partition: int) -> None:
        """It may not be loading any more: let those go on who waited for that.

        To be called in the turn in which that changed, so that nobody overtakes them.
        """
        first = next(iter(self._held.get(partition, ())), None)
        if first is None or self._problem(first) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        for held in self._held.pop(partition):
            held.timer.cancel()
            self._decide(self._problem(held), held.transactional_id, held.enter)

    def retry_all(self) -> None:
        """The same where any partition may have changed."""
        for partition in list(self._held):
            self.retry(partition)

    def _give_up(self, partition: int, held: _Held) -> None:
        waiting = self._held[partition]
        del waiting[held]
        if not waiting:
            del self._held[partition]
        self._decide(self._problem(held), held.transactional_id, held.enter)

    def _problem(self, held: _Held) -> ErrorCode:
        return self._registry.ownership_problem(held.transactional_id)

    def _decide(self, code: ErrorCode, transactional_id: str, enter: Enter) -> None:
        code = code or self._lease_problem()
        enter(code, None if code else self._registry.find(transactional_id))
