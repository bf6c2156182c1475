"""Faults at the moments that decide a transaction, seen at the coordinator's own ports.

    EndTxn ─▶ PrepareCommit appended ─▶ committed ─▶ answered ─▶ markers ─▶ last marker
                      APPENDED           COMMITTED          ANSWERED

While they are watched, what passes through the log of the transaction coordinator and through its
way to the markers is looked at; the shipped code knows nothing of it. The next commit that comes to
the moment that is aimed at calls ``strike``, inside of the turn in which it comes to it.
Source: docs/spec/transactions.md §2.6, §3.2 and §3.4 (check T3.1), §8 (T8.21: every crash point).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from barnabas.broker.markers.sender import MarkerSender
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.coordinator.transactions.ports import MarkerWrite
from barnabas.coordinator.transactions.transaction_record import id_of, metadata_of
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from tests.sim.cluster import Cluster, Machine
from tests.sim.simulated_network import OWNER

ARRIVED_S: Final = 0.01
"""What a node has sent is with the client by then, and followers have what they were sent."""
HELD_S: Final = 0.1
"""Markers that are held back set out so long after the others."""


class Moment(Enum):
    """Where a commit is."""

    APPENDED = "PrepareCommit is in the leader's log, and no follower has it"
    COMMITTED = "PrepareCommit is committed, and nobody was told"
    ANSWERED = "EndTxn was answered, and not every marker is written"


@dataclass(frozen=True, slots=True)
class Struck:
    """Whose commit it was, and where."""

    moment: Moment
    machine: Machine
    """The coordinator's."""
    transactional_id: str
    held: Collection[tuple[str, int]] = ()
    """Partitions whose markers are held back."""


Strike = Callable[[Struck], None]


class FaultPoints:
    """What is aimed at, and what happened."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._aim: Moment | None = None
        self._strike: Strike = lambda struck: None
        self._came: asyncio.Future[Struck]
        self._ids: dict[int, str] = {}
        """The transactional ids of producers, as far as they committed anything."""

    async def aim(self, moment: Moment, strike: Strike, within_s: float = 60.0) -> Struck:
        """Have the next commit struck at this moment; returns when it was."""
        self._aim, self._strike = moment, strike
        self._came = self._cluster.loop.create_future()
        async with asyncio.timeout(within_s):
            return await self._came

    def _hit(self, struck: Struck) -> None:
        self._aim = None
        self._strike(struck)
        self._came.set_result(struck)

    def _machine(self) -> Machine:
        """On which the running code is."""
        name = OWNER.get()
        return next(one for one in self._cluster.machines.values() if one.name == name)

    # -- the log ---------------------------------------------------------------------------------

    def appending(self, append: Callable[..., None], data: bytearray, on_appended: Any) -> None:
        """A batch of the transaction log; ``append`` is given what is to be called at its end."""
        ids = self._commits_in(data)
        if ids and self._aim is Moment.APPENDED:
            self._append_alone(append, on_appended, ids[0])
        elif ids and self._aim is Moment.COMMITTED:
            append(self._struck_first(on_appended, ids[0]))
        else:
            append(on_appended)

    def _append_alone(self, append: Callable[..., None], on_appended: Any, name: str) -> None:
        """From now on no follower is sent anything, until the cuts are healed."""
        machine, network = self._machine(), self._cluster.loop.network
        refused: list[ErrorCode] = []

        def told(code: ErrorCode, base_offset: int) -> None:
            refused.append(code)
            on_appended(code, base_offset)

        for other in self._cluster.machines.values():
            if other is not machine:
                network.cut(machine.name, other.name)
        append(told)
        if refused:
            network.heal(machine.name)
        else:
            self._hit(Struck(Moment.APPENDED, machine, name))

    def _struck_first(self, on_appended: Callable[[ErrorCode, int], None], name: str) -> Any:
        """The coordinator hears that its record is committed in the turn after the blow."""

        def committed(code: ErrorCode, base_offset: int) -> None:
            if code is not ErrorCode.NONE or self._aim is not Moment.COMMITTED:
                on_appended(code, base_offset)
                return
            self._hit(Struck(Moment.COMMITTED, self._machine(), name))
            self._cluster.loop.call_soon(on_appended, code, base_offset)

        return committed

    def _commits_in(self, data: bytearray) -> list[str]:
        """The id of each PrepareCommit in a batch."""
        found = []
        for record in batch.records(data, 0):
            if record.value is None:
                continue
            metadata = metadata_of(bytes(record.value))
            if metadata.state is TransactionState.PREPARE_COMMIT:
                found.append(id_of(bytes(record.key or b"")))
                self._ids[metadata.producer_id] = found[-1]
        return found

    # -- the markers -----------------------------------------------------------------------------

    def sending(self, send: Callable[[MarkerWrite], None], write: MarkerWrite) -> None:
        """Markers of a decided transaction set out: some do, and the others after the blow."""
        is_known = write.producer_id in self._ids
        if self._aim is not Moment.ANSWERED or not (write.is_commit and is_known):
            send(write)
            return
        self._aim = None
        loop, partitions = self._cluster.loop, list(write.partitions)
        loop.random.shuffle(partitions)
        count = loop.random.randrange(len(partitions))
        if count:
            send(replace(write, partitions=tuple(partitions[:count])))
        held = tuple(partitions[count:])
        struck = Struck(Moment.ANSWERED, self._machine(), self._ids[write.producer_id], held)
        loop.call_later(ARRIVED_S, self._hit, struck)
        loop.call_later(HELD_S, send, replace(write, partitions=held))


@contextlib.contextmanager
def watched(points: FaultPoints) -> Iterator[None]:
    """Have ``points`` look at what passes through the ports of every node."""
    append, send = StateLogPort.append, MarkerSender.send

    def looked_at(
        self: Any, partition: int, data: bytearray, *, on_appended: Any, **rest: Any
    ) -> None:
        def proceed(told: Any) -> None:
            append(self, partition, data, on_appended=told, **rest)

        if self._topic == TRANSACTION_TOPIC:
            points.appending(proceed, data, on_appended)
        else:
            proceed(on_appended)

    def sent(self: Any, write: MarkerWrite) -> None:
        points.sending(lambda some: send(self, some), write)

    StateLogPort.append = looked_at  # type: ignore[method-assign, assignment]
    MarkerSender.send = sent  # type: ignore[method-assign]
    try:
        yield
    finally:
        StateLogPort.append = append  # type: ignore[method-assign]
        MarkerSender.send = send  # type: ignore[method-assign]
