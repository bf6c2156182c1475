"""The APIs of transactions, from a call to the coordinators and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.broker.handlers.call import PendingResponse, is_coroutine
from barnabas.broker.handlers.transactions import TransactionsHandler
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import Caller
from barnabas.coordinator.transactions.service import TransactionCoordinator
from barnabas.protocol import api
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import add_partitions_to_txn as messages
from barnabas.protocol.messages import end_txn
from tests.handlers.peer import SomePeer, answered, call

OF_GROUPS = "txn_offset_commit"


class Coordinator:
    """Either coordinator: notes what it was asked, and answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, int, Caller]] = []
        self.respond: Callable[[Any], None] = lambda answer: None

    def __getattr__(self, name: str) -> Any:
        def method(
            request: Any, version: int, caller: Caller, respond: Callable[[Any], None]
        ) -> None:
            self.asked.append((name, request, version, caller))
            self.respond = respond

        return method


@pytest.fixture
def transactions() -> Coordinator:
    return Coordinator()


@pytest.fixture
def groups() -> Coordinator:
    return Coordinator()


@pytest.fixture
def handler(transactions: Coordinator, groups: Coordinator) -> TransactionsHandler:
    return TransactionsHandler(
        cast(TransactionCoordinator, transactions), cast(GroupCoordinator, groups)
    )


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ],
)
async def test_each_api_goes_to_its_coordinator_and_is_answered_when_that_says_so(
    handler: TransactionsHandler, transactions: Coordinator, groups: Coordinator, key: ApiKey
) -> None:
    spec = api.lookup(key)
    assert spec is not None
    answer = handler.handlers()[key](call(spec.request(), 0))
    coordinator = groups if key is ApiKey.TXN_OFFSET_COMMIT else transactions
    if is_coroutine(answer):
        pending = answer.send(None)
        assert pending is not None
        expected = spec.response()
        coordinator.respond(expected)
        assert answered(answer) is expected
    else:
        assert isinstance(answer, PendingResponse)
        assert not answer.is_resolved
        expected = spec.response()
        coordinator.respond(expected)
        assert answer.answer is expected
    [(name, _, version, caller)] = coordinator.asked
    assert name.upper() == key.name
    assert (version, caller.client_id, caller.host) == (0, "test", "127.0.0.1")


def adding() -> messages.AddPartitionsToTxnRequest:
    return messages.AddPartitionsToTxnRequest(
        transactions=[
            messages.Transaction(
                transactional_id="mine",
                producer_id=7,
                producer_epoch=0,
                verify_only=True,
                topics=[messages.Topic(name="t", partitions=[0])],
            )
        ]
    )


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("is_node", [False, True])
def test_clients_may_ask_for_several_transactions_as_nodes_do(
    handler: TransactionsHandler, transactions: Coordinator, version: int, is_node: bool
) -> None:
    """Those versions are offered to them, and some take the latest; access rules are guards'."""
    peer = SomePeer("INTERNAL", is_internal=True) if is_node else SomePeer()
    handler.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN](call(adding(), version, peer=peer))
    [(_, request, asked_version, _)] = transactions.asked
    assert (request, asked_version) == (adding(), version)


async def test_the_answer_of_a_coordinator_is_the_clients(
    handler: TransactionsHandler, transactions: Coordinator
) -> None:
    request = end_txn.EndTxnRequest(
        transactional_id="mine", producer_id=7, producer_epoch=3, committed=True
    )
    pending = handler.handlers()[ApiKey.END_TXN](call(request, 3))
    transactions.respond(end_txn.EndTxnResponse(error_code=51))
    assert answered(pending).error_code == 51
    assert transactions.asked[0][1] == request


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    ],
)
def test_what_a_producer_asked_on_a_connection_that_it_closed_is_not_done(
    handler: TransactionsHandler, transactions: Coordinator, groups: Coordinator, key: ApiKey
) -> None:
    """T8.22."""
    spec = api.lookup(key)
    assert spec is not None
    late = call(spec.request(), 0, peer=SomePeer(is_closed=True))
    assert handler.handlers()[key](late) is None
    assert transactions.asked == groups.asked == []
