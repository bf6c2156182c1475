"""A transactional producer that finds its coordinator again within milliseconds.

It does what a client library does: each step is asked for until it is done, by whoever coordinates
then, and the transaction goes on. Only its patience is less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.protocol.codec.compiler import decoder
from barnabas.protocol.messages import metadata
from benchmarks import transaction_frames
from benchmarks.eager_client import (
    PATIENCE_S,
    RETRY_S,
    Address,
    BrokerConnection,
    EagerClient,
    Unanswered,
)
from benchmarks.overload_frames import describe

RETRIABLE: Final = (3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 51)
MOVED: Final = (15, 16)
PRODUCE_S: Final = 30.0
"""The leader is never the victim, but it may have to wait for its followers."""
VALUE: Final = b"v" * 100

_read_metadata = decoder(metadata.MetadataResponse, 4)


class EagerTransactor(EagerClient):
    """Transactions of one record each, one after the other, until it is cancelled."""

    KEY_TYPE = 1

    def __init__(self, addresses: Sequence[Address], name: str, topic: str, partition: int) -> None:
        super().__init__(addresses, name)
        self._topic = topic
        self._partition = partition
        self._coordinator: tuple[Address, BrokerConnection] | None = None
        self._leader: BrokerConnection | None = None

    async def run(self) -> None:
        """Commit for ever."""
        try:
            await self._transact()
        finally:
            self._leave()
            self._leave_leader()

    async def _transact(self) -> None:
        begin = transaction_frames.init_producer_id(self.name)
        answer, _ = await self._coordinated(begin, lambda it: transaction_frames.initialised(it)[0])
        _, producer_id, epoch = transaction_frames.initialised(answer)
        producer = transaction_frames.Producer(self.name, producer_id, epoch)
        add, end = producer.add_partitions(self._topic, [self._partition]), producer.end()
        records = transaction_frames.records_of([VALUE])
        sequence = 0
        while True:
            await self._coordinated(
                add, lambda it: transaction_frames.added_code(it, self._topic, 1)
            )
            batch = producer.batch(sequence, records, 1)
            await self._produce(producer.produce(self._topic, [self._partition], batch))
            _, address = await self._coordinated(end, transaction_frames.single_code)
            self.acknowledge(address)
            sequence += 1

    async def _coordinated(
        self, frame: bytes, code_of: Callable[[bytes], int]
    ) -> tuple[bytes, Address]:
        """Have the coordinator do something, whoever that is by then; its answer and address."""
        while True:
            try:
                if self._coordinator is None:
                    found = await self.find()
                    self._coordinator = (found, await BrokerConnection.open(found))
                address, connection = self._coordinator
                answer = await self.call_coordinator(connection, address, frame)
                code = code_of(answer)
                if code == 0:
                    return answer, address
                self._note(code)
                if code in MOVED:
                    self._leave()
            except Unanswered:
                self._leave()
            await asyncio.sleep(RETRY_S)

    async def _produce(self, frame: bytes) -> None:
        """Have the batch appended; sent again it is taken for what it is."""
        while True:
            try:
                if self._leader is None:
                    self._leader = await BrokerConnection.open(await self._find_leader())
                async with asyncio.timeout(PRODUCE_S):
                    answer = await self._leader.call(frame)
                code = transaction_frames.produced_code(answer, self._topic, 1)
                if code == 0:
                    return
                self._note(code)
            except (Unanswered, TimeoutError):
                self._leave_leader()
            await asyncio.sleep(RETRY_S)

    async def _find_leader(self) -> Address:
        """Where the partition's leader is, as any node says; raises Unanswered."""
        for address in self._addresses:
            try:
                answer = await self._describe(address)
            except (Unanswered, TimeoutError):
                continue
            nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
            for one in answer.topics[0].partitions:
                if one.partition_index == self._partition and one.leader_id in nodes:
                    return nodes[one.leader_id]
        raise Unanswered("nobody knows the leader")

    async def _describe(self, address: Address) -> metadata.MetadataResponse:
        connection = await BrokerConnection.open(address)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return _read_metadata(await connection.call(describe([self._topic])), 4)
        finally:
            connection.close()

    def _note(self, code: int) -> None:
        """A refusal; raises AssertionError where asking again would not help."""
        assert code in RETRIABLE, f"{self.name}: {code}"
        self.refuse(code)

    def _leave(self) -> None:
        if self._coordinator is not None:
            self._coordinator[1].close()
        self._coordinator = None

    def _leave_leader(self) -> None:
        if self._leader is not None:
            self._leader.close()
        self._leader = None
