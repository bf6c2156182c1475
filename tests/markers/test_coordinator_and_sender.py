"""A transaction coordinator whose markers go to other nodes: docs/spec/transactions.md §3.4."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.transactions.conftest import make_transactions, transactions
from tests.coordinator.transactions.transactions_harness import TransactionsHarness, codes
from tests.markers.test_sender import Sending, answer

__all__ = ["make_transactions", "transactions"]

TOPIC = "orders"


@pytest.fixture
def sending(transactions: TransactionsHarness) -> Iterator[Sending]:
    async def make() -> Sending:
        return Sending()

    made = transactions.loop.run_until_complete(make())
    coordinator = transactions.coordinator
    coordinator.completions._markers = coordinator._markers = made.sender
    running = transactions.loop.create_task(made.sender.run())
    yield made
    running.cancel()
    transactions.loop.run_until_complete(asyncio.gather(running, return_exceptions=True))


def test_a_commit_is_answered_while_a_leader_is_away_and_complete_when_it_is_back(
    transactions: TransactionsHarness, sending: Sending
) -> None:
    """T3.7."""
    sending.stored = {TOPIC: [0, 1]}
    sending.lead((TOPIC, 0, 2), (TOPIC, 1, -1))
    producer = transactions.begin()
    transactions.add(producer, {TOPIC: [0, 1]})
    assert transactions.commit(producer) is ErrorCode.NONE
    [request, _, under_way] = sending.nodes[2].requests[0]
    assert [list(topic.partition_indexes) for topic in request.markers[0].topics] == [[0]]
    under_way.set_result(answer((producer[0], TOPIC, 0, 0)))
    for _ in range(10):
        transactions.wait(1)
        assert transactions.commit(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert codes(transactions.add(producer, {TOPIC: [0]})) == {(TOPIC, 0): 51}
    assert transactions.state() is TransactionState.PREPARE_COMMIT
    sending.lead((TOPIC, 0, 2), (TOPIC, 1, 3))
    transactions.turn()
    sending.nodes[3].answer(answer((producer[0], TOPIC, 1, 0)))
    transactions.turn()
    assert transactions.state() is TransactionState.COMPLETE_COMMIT
    assert transactions.commit(producer) is ErrorCode.NONE
    assert transactions.states().count("CompleteCommit") == 1


def test_a_transaction_completes_when_its_topic_is_deleted(
    transactions: TransactionsHarness, sending: Sending
) -> None:
    """T3.5."""
    sending.stored = {TOPIC: [0], "clicks": [0]}
    sending.lead((TOPIC, 0, 2), ("clicks", 0, 3))
    producer = transactions.begin()
    transactions.add(producer, {TOPIC: [0], "clicks": [0]})
    del sending.stored["clicks"]
    sending.lead((TOPIC, 0, 2))
    assert transactions.commit(producer) is ErrorCode.NONE
    sending.nodes[2].answer(answer((producer[0], TOPIC, 0, 0)))
    transactions.wait(1)
    assert transactions.state() is TransactionState.COMPLETE_COMMIT


def test_markers_of_a_term_that_is_over_are_neither_sent_nor_counted(
    transactions: TransactionsHarness, sending: Sending
) -> None:
    """See docs/spec/transactions.md §3.3; the next term sends all of them under its own epoch."""
    sending.lead((TOPIC, 0, 2), (TOPIC, 1, 2))
    producer = transactions.begin()
    transactions.add(producer, {TOPIC: [0, 1]})
    transactions.commit(producer)
    assert sending.nodes[2].requests[0][0].markers[0].coordinator_epoch == 0
    transactions.reload()
    assert sending.sender.open_count == 2
    sending.nodes[2].answer(answer((producer[0], TOPIC, 0, 0), (producer[0], TOPIC, 1, 0)))
    transactions.turn()
    assert transactions.state() is TransactionState.PREPARE_COMMIT
    again = sending.nodes[2].requests[1][0].markers[0]
    assert again.coordinator_epoch == 1
    assert sorted(again.topics[0].partition_indexes) == [0, 1]
    sending.nodes[2].answer(answer((producer[0], TOPIC, 0, 0), (producer[0], TOPIC, 1, 0)), 2)
    transactions.turn()
    assert transactions.state() is TransactionState.COMPLETE_COMMIT
