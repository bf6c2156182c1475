"""A damaged batch of ``__transaction_state``: nothing of its partition is served until it is whole.

The same as for offsets (docs/spec/coordinator.md §3.4), but that nothing is left out: a
PrepareCommit that was passed over would have a commit aborted that was answered.
Source: docs/spec/transactions.md §3.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.coordinator.transactions.transaction import Metadata
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records import batch
from barnabas.protocol.records.header import HEADER_BYTES
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.transactions.transactions_harness import (
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)
from tests.replication.logs import ManualLogManager, follow, hosting, lead
from tests.sim.simulated_loop import SimulatedLoop

IDS = [name for name in (f"id-{number}" for number in range(20)) if partition_of(name) == 0][:4]
ELSEWHERE = next(name for name in "tuvw" if partition_of(name) == 1)
RETRIED_S = 11
"""Longer than the longest pause between two loads of a partition that failed."""


class StoredLog:
    """The coordinator's port over logs on disk, in place of a list in memory."""

    def __init__(self, loop: SimulatedLoop, directory: Path) -> None:
        async def start() -> None:
            self.logs = ManualLogManager(directory)
            await self.logs.load()
            replicas = self.replicas = hosting(self.logs, lambda *_: True)
            self.port = StateLogPort(replicas, TRANSACTION_TOPIC, loop)

        loop.run_until_complete(start())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def lead(self, index: int, leader_epoch: int) -> None:
        more = {"epoch": leader_epoch, "partition_epoch": leader_epoch}
        lead(self.replicas, TRANSACTION_TOPIC, index, **more)

    def resign(self, index: int, leader_epoch: int) -> None:
        follow(self.replicas, TRANSACTION_TOPIC, index, epoch=leader_epoch)

    def write(self, batches: list[bytearray]) -> None:
        """Append to partition 0, which is led here."""
        for data in batches:
            self.replicas.led(TRANSACTION_TOPIC, 0).append(
                bytearray(data), acks=-1, is_client=False
            )

    @property
    def path(self) -> Path:
        """The file that holds partition 0."""
        return self.logs.log(TRANSACTION_TOPIC).directory / f"{0:020}.log"

    def flip(self, place: int, bit: int) -> None:
        data = bytearray(self.path.read_bytes())
        data[place] ^= 1 << bit
        with self.path.open("r+b") as file:
            file.write(data)


def written() -> tuple[list[bytearray], dict[str, Metadata]]:
    """The batches of a short history, and what it comes to."""
    with closing(TransactionsHarness()) as node:
        node.markers.is_prompt = False
        for name in IDS:
            producer = node.begin(name, timeout_ms=900_000)
            node.add(producer, {"orders": [0, 1]}, name=name)
        node.hand_in_end((1001, 0), name=IDS[0])  # these two are records of one batch
        node.hand_in_end((1002, 0), name=IDS[1], is_commit=False)
        node.turn()
        node.end((1003, 0), name=IDS[2])
        batches = node.log.partition(0).batches
        assert sorted({len(list(batch.records(data))) for data in batches}) == [1, 2]
        return batches, {name: node.metadata(name) for name in IDS}


class Node:
    """A node with that history on its disk, not elected yet."""

    def __init__(self, directory: Path) -> None:
        self.loop = SimulatedLoop(1)
        self.batches, self.expected = written()
        self.log = StoredLog(self.loop, directory)
        self.coordinator = TransactionsHarness(
            loop=self.loop, log=cast(MemoryLog, self.log), is_elected=False
        )
        self.coordinator.markers.is_prompt = False
        self.log.lead(0, 0)
        self.log.write(self.batches)
        self.epoch = 1

    def place_of(self, number: int) -> int:
        """Where a batch begins in the file."""
        return sum(map(len, self.batches[:number]))

    def elect(self) -> None:
        for index in range(2):
            self.coordinator.elect(index, self.epoch)
        self.coordinator.wait(1)

    def fail_over(self) -> None:
        """To another node and back."""
        self.epoch += 2
        self.log.resign(0, self.epoch - 1)
        self.coordinator.coordinator.on_resigned(0, self.epoch - 1)
        self.coordinator.wait(1)
        self.coordinator.elect(0, self.epoch)
        self.coordinator.wait(1)

    def served(self) -> dict[str, Metadata] | None:
        """What is served of partition 0; None where that is nothing at all."""
        registry = self.coordinator.coordinator.registry
        problems = {registry.ownership_problem(name) for name in IDS}
        if problems == {ErrorCode.NOT_COORDINATOR}:
            return None
        assert problems == {ErrorCode.NONE}
        return {name: self.coordinator.metadata(name) for name in IDS}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.loop.run_until_complete(made.log.logs.close())
    made.coordinator.close()


def test_a_partition_with_a_damaged_batch_is_not_served_at_all(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """16 for every id of it, a clear line in the log, and others are served."""
    node.log.flip(node.place_of(2) + HEADER_BYTES + 9, 3)
    with caplog.at_level(logging.ERROR):
        node.elect()
    assert f"not served partition={TRANSACTION_TOPIC}-0: " in caplog.text
    assert "checksum of the batch at offset 2" in caplog.text
    transactions, refused = node.coordinator, ErrorCode.NOT_COORDINATOR
    for number, name in enumerate(IDS):
        producer = 1001 + number, 0
        assert identity(transactions.init(name))[0] is refused
        assert set(codes(transactions.add(producer, name=name)).values()) == {refused}
        assert set(codes(transactions.verify(producer, {"orders": [0]}, name=name)).values()) == {
            refused
        }
        assert transactions.add_offsets(producer, name=name).code is refused
        assert transactions.commit(producer, name=name) is refused
        assert transactions.describe(name)[0].error_code == refused
    assert transactions.markers.writes == []
    assert identity(transactions.init(ELSEWHERE))[0] is ErrorCode.NONE
    assert not transactions.list().error_code


def test_it_is_served_whole_when_the_batch_is_whole_again(node: Node) -> None:
    node.log.flip(node.place_of(2) + HEADER_BYTES + 9, 3)
    node.elect()
    assert node.served() is None
    node.log.flip(node.place_of(2) + HEADER_BYTES + 9, 3)
    node.coordinator.wait(RETRIED_S)
    assert node.served() == node.expected
    sent = {(one.producer_id, one.is_commit) for one in node.coordinator.markers.writes}
    assert sent == {(1001, True), (1002, False), (1003, True)}


@pytest.mark.parametrize("number", [5, 9])
def test_whichever_byte_is_damaged_nothing_is_served_with_a_hole(node: Node, number: int) -> None:
    """A batch of one record, or of two, in the middle; also as a follower that is elected."""
    begin, end = node.place_of(number), node.place_of(number + 1)
    node.elect()
    assert node.served() == node.expected
    outcomes = set()
    for place in (*range(begin, begin + HEADER_BYTES), *range(begin + HEADER_BYTES, end, 5)):
        node.log.flip(place, place % 8)
        node.fail_over()
        found = node.served()
        assert found is None or found == node.expected, f"byte {place - begin}"
        outcomes.add(found is None)
        node.log.flip(place, place % 8)
    assert outcomes == {True, False}  # a leader epoch is in no checksum, and nothing hangs on it
    node.coordinator.wait(RETRIED_S)
    assert node.served() == node.expected
