"""A transaction coordinator on a simulated loop: requests and answers pass as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC, Caller
from barnabas.coordinator.transactions.config import TransactionConfig
from barnabas.coordinator.transactions.gate import HOLD_S
from barnabas.coordinator.transactions.ports import MarkerWrite, TopicPartition
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.coordinator.transactions.transaction import Metadata, Transaction
from barnabas.coordinator.transactions.transaction_record import id_of, metadata_of
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from barnabas.protocol.records.record import Record
from tests.coordinator.coordinator_harness import Asked
from tests.coordinator.memory_log import MemoryLog
from tests.sim.simulated_loop import SimulatedLoop

PARTITIONS = 2
CALLER = Caller(client_id="app", host="10.0.0.7")
CODES = {int(code): code for code in ErrorCode}


class KnownTopics:
    """Implements transactions.ports.TransactionTopics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {
            "orders": 8,
            "clicks": 4,
            OFFSETS_TOPIC: 4,
            TRANSACTION_TOPIC: PARTITIONS,
        }
        self.may_be_led: set[int] = set()
        self.creations = 0
        self.are_known = True

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def missing_partition_error(self) -> ErrorCode:
        if self.are_known:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def may_lead(self, partition: int) -> bool:
        return partition in self.may_be_led

    def lacks_transaction_topic(self) -> bool:
        return TRANSACTION_TOPIC not in self.counts

    def create_offsets_topic(self) -> None:
        self.creations += 1


class MemoryProducerIds:
    """Implements transactions.ports.ProducerIds; ids wait while ``is_away``."""

    def __init__(self) -> None:
        self.next = 1000
        self.is_away = False
        self.waiting: list[Callable[[int, ErrorCode], None]] = []

    def next_id(self, on_id: Callable[[int, ErrorCode], None]) -> None:
        if self.is_away:
            self.waiting.append(on_id)
            return
        self.next += 1
        on_id(self.next, ErrorCode.NONE)

    def decide(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer whoever waits."""
        waiting, self.waiting = self.waiting, []
        self.is_away = False
        for on_id in waiting:
            if code:
                on_id(-1, code)
            else:
                self.next_id(on_id)


@dataclass(eq=False)
class MemoryMarkers:
    """Implements transactions.ports.Markers; writes at once, or as the test says."""

    loop: SimulatedLoop
    is_prompt: bool = True

    def __post_init__(self) -> None:
        self.writes: list[MarkerWrite] = []
        """Every write that was asked for, in order."""
        self.waiting: list[tuple[MarkerWrite, TopicPartition]] = []
        self.dropped: list[int] = []
        self.written: list[tuple[TopicPartition, int, int, bool]] = []
        """Partition, producer id, epoch, and whether it was a commit."""

    def send(self, write: MarkerWrite) -> None:
        self.writes.append(write)
        self.waiting += [(write, partition) for partition in write.partitions]
        if self.is_prompt:
            self.loop.call_soon(self.write_all)

    def drop(self, transaction_partition: int) -> None:
        self.dropped.append(transaction_partition)
        self.waiting = [
            item for item in self.waiting if item[0].transaction_partition != transaction_partition
        ]

    def write_all(self, code: ErrorCode = ErrorCode.NONE, *, count: int = 1 << 30) -> None:
        """Let so many markers end with this code."""
        ready, self.waiting = self.waiting[:count], self.waiting[count:]
        for write, partition in ready:
            if not write.is_current():
                continue
            if not code:
                self.written.append(
                    (partition, write.producer_id, write.producer_epoch, write.is_commit)
                )
            write.on_written(partition, code)


class TransactionsHarness:
    """One node's coordinator, leading every partition of the transaction log."""

    def __init__(
        self,
        *,
        loop: SimulatedLoop | None = None,
        log: MemoryLog | None = None,
        is_elected: bool = True,
        **settings: Any,
    ) -> None:
        self.loop = loop or SimulatedLoop(1)
        self.log = log or MemoryLog(self.loop)
        self.topics = KnownTopics()
        self.markers = MemoryMarkers(self.loop)
        self.producer_ids = MemoryProducerIds()
        self.lease_problem = ErrorCode.NONE
        self.clock_jump_ms = 0
        self.coordinator = TransactionCoordinator(
            node_id=1,
            config=TransactionConfig(**settings),
            log=self.log,
            topics=self.topics,
            markers=self.markers,
            producer_ids=self.producer_ids,
            loop=self.loop,
            now_ms=self.now_ms,
            lease_problem=lambda: self.lease_problem,
        )
        self.coordinator.start(PARTITIONS)
        self._running = self.loop.create_task(self.coordinator.run())
        if is_elected:
            for index in range(PARTITIONS):
                self.elect(index, 0)
        self.turn()

    def now_ms(self) -> int:
        return self.loop.wall_ms() + self.clock_jump_ms

    def close(self) -> None:
        self._running.cancel()
        self.loop.run_until_complete(asyncio.gather(self._running, return_exceptions=True))
        self.loop.close()

    def elect(self, index: int, leader_epoch: int) -> None:
        self.log.lead(index, leader_epoch)
        self.coordinator.on_elected(index, leader_epoch)

    def resign(self, index: int, leader_epoch: int) -> None:
        self.log.resign(index)
        self.coordinator.on_resigned(index, leader_epoch)

    def reload(self, leader_epoch: int = 1) -> None:
        """Resign everywhere, then be elected again: nothing but the log is left."""
        for index in range(PARTITIONS):
            self.resign(index, leader_epoch)
        for index in range(PARTITIONS):
            self.elect(index, leader_epoch)
        self.turn()

    def turn(self, times: int = 12) -> None:
        """Let the loop run what is ready."""
        for _ in range(times):
            self.loop.run_until_complete(asyncio.sleep(0))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.turn()

    # -- what is kept ----------------------------------------------------------------------------

    def transaction(self, name: str = "t") -> Transaction:
        found = self.coordinator.registry.find(name)
        assert found is not None
        return found

    def metadata(self, name: str = "t") -> Metadata:
        return self.transaction(name).metadata

    def state(self, name: str = "t") -> TransactionState:
        return self.transaction(name).state

    def records(self, name: str = "t") -> list[Record]:
        """Those of one id in the log."""
        return [
            record
            for record in self.log.records(partition_of(name))
            if record.key is not None and id_of(record.key) == name
        ]

    def logged(self, name: str = "t") -> list[Metadata | None]:
        """What the log says of an id, record by record; None for a tombstone."""
        return [
            None if record.value is None else metadata_of(record.value)
            for record in self.records(name)
        ]

    def states(self, name: str = "t") -> list[str]:
        """The states that were logged of an id."""
        return ["-" if found is None else found.state.value for found in self.logged(name)]

    # -- requests --------------------------------------------------------------------------------

    def ask(self, api: str, request: Any, version: int) -> Asked:
        """Hand a request in; what is ready by then has run."""
        asked = self.hand_in(api, request, version)
        self.turn(4)
        return asked

    def hand_in(self, api: str, request: Any, version: int) -> Asked:
        """The same within the present turn of the loop."""
        asked = Asked(version)
        arrived = decode(type(request), version, encode(request, version))
        getattr(self.coordinator, api)(arrived, version, CALLER, asked.reply)
        return asked

    def init(
        self,
        name: str | None = "t",
        *,
        producer: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> Asked:
        asked = self.hand_in_init(name, producer=producer, timeout_ms=timeout_ms, version=version)
        self.turn(4)
        return asked

    def hand_in_init(
        self,
        name: str | None = "t",
        *,
        producer: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> Asked:
        """The same within the present turn of the loop."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        return self.hand_in("init_producer_id", request, version)

    def begin(self, name: str = "t", **fields: Any) -> tuple[int, int]:
        """An id with a fresh epoch."""
        asked = self.init(name, **fields)
        assert identity(asked)[0] is ErrorCode.NONE
        return identity(asked)[1:]

    def add(
        self,
        producer: tuple[int, int],
        partitions: Mapping[str, Sequence[int]] | None = None,
        *,
        name: str = "t",
        version: int = 3,
    ) -> Asked:
        if partitions is None:
            partitions = {"orders": [0]}
        asked = self.hand_in_add(producer, partitions, name=name, version=version)
        self.turn(4)
        return asked

    def hand_in_add(
        self,
        producer: tuple[int, int],
        partitions: Mapping[str, Sequence[int]],
        *,
        name: str = "t",
        version: int = 3,
    ) -> Asked:
        """The same within the present turn of the loop."""
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics_of(partitions),
        )
        return self.hand_in("add_partitions_to_txn", request, version)

    def batch(self, *transactions: add_partitions_to_txn.Transaction, version: int = 4) -> Asked:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=list(transactions))
        return self.ask("add_partitions_to_txn", request, version)

    def verify(
        self,
        producer: tuple[int, int],
        partitions: Mapping[str, Sequence[int]],
        *,
        name: str = "t",
        version: int = 4,
    ) -> Asked:
        asked = self.hand_in_verify(producer, partitions, name, version)
        self.turn(4)
        return asked

    def hand_in_verify(
        self,
        producer: tuple[int, int],
        partitions: Mapping[str, Sequence[int]],
        name: str = "t",
        version: int = 4,
    ) -> Asked:
        """The same within the present turn of the loop."""
        transaction = add_partitions_to_txn.Transaction(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=True,
            topics=topics_of(partitions),
        )
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])
        return self.hand_in("add_partitions_to_txn", request, version)

    def add_offsets(
        self, producer: tuple[int, int], group: str = "g", *, name: str = "t", version: int = 3
    ) -> Asked:
        asked = self.hand_in_add_offsets(producer, group, name=name, version=version)
        self.turn(4)
        return asked

    def hand_in_add_offsets(
        self, producer: tuple[int, int], group: str = "g", *, name: str = "t", version: int = 3
    ) -> Asked:
        """The same within the present turn of the loop."""
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group,
        )
        return self.hand_in("add_offsets_to_txn", request, version)

    def end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool = True,
        name: str = "t",
        version: int = 4,
    ) -> Asked:
        asked = self.hand_in_end(producer, is_commit=is_commit, name=name, version=version)
        self.turn(4)
        return asked

    def hand_in_end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool = True,
        name: str = "t",
        version: int = 4,
    ) -> Asked:
        """The same within the present turn of the loop."""
        request = end_txn.EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=is_commit,
        )
        return self.hand_in("end_txn", request, version)

    def commit(self, producer: tuple[int, int], **fields: Any) -> ErrorCode:
        return self.end(producer, **fields).code

    def commit_waits(self, producer: tuple[int, int], **fields: Any) -> ErrorCode:
        """The same of a partition that loads: the answer after the wait."""
        asked = self.end(producer, **fields)
        assert not asked.is_answered
        self.wait(HOLD_S)
        return asked.code

    def abort(self, producer: tuple[int, int], **fields: Any) -> ErrorCode:
        return self.end(producer, is_commit=False, **fields).code

    def describe(self, *names: str) -> list[Any]:
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=list(names))
        return list(self.ask("describe_transactions", request, 0).answer.transaction_states)

    def list(self, **filters: Any) -> Any:
        """The answer to ListTransactions; filters as in :meth:`hand_in_list`."""
        asked = self.hand_in_list(**filters)
        self.turn(4)
        return asked.answer

    def hand_in_list(
        self,
        *,
        states: Sequence[str] = (),
        producers: Sequence[int] = (),
        duration_ms: int = -1,
        version: int = 1,
    ) -> Asked:
        """Ask for what passes these filters within the present turn of the loop."""
        fields = {"duration_filter": duration_ms} if version else {}
        request = list_transactions.ListTransactionsRequest(
            state_filters=states, producer_id_filters=producers, **fields
        )
        return self.hand_in("list_transactions", request, version)


def partition_of(name: str) -> int:
    return group_partition(name, PARTITIONS)


def topics_of(partitions: Mapping[str, Sequence[int]]) -> list[add_partitions_to_txn.Topic]:
    return [
        add_partitions_to_txn.Topic(name=name, partitions=list(indexes))
        for name, indexes in partitions.items()
    ]


def identity(asked: Asked) -> tuple[ErrorCode, int, int]:
    """Code, producer id and epoch of an answered InitProducerId."""
    answer = asked.answer
    return CODES[answer.error_code], answer.producer_id, answer.producer_epoch


def codes(asked: Asked) -> dict[TopicPartition, ErrorCode]:
    """The code of each partition in an answered AddPartitionsToTxn; of a batch, of its first."""
    answer = asked.answer
    topics = (
        answer.results_by_transaction[0].topic_results
        if asked.version >= 4
        else answer.results_by_topic_v3_and_below
    )
    return {
        (topic.name, result.partition_index): CODES[result.partition_error_code]
        for topic in topics
        for result in topic.results_by_partition
    }
