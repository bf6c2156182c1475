"""Questions to transaction coordinators: docs/spec/transactions.md §5.3."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.verification.verifier import Codes, Question, TransactionVerifier
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn as messages
from tests.replication.logs import turns
from tests.verification.node_links import FakeNodes, running

HERE = 1
THERE = 2


class Asking:
    """A verifier, whose ids are coordinated where ``coordinators`` says."""

    def __init__(self, version: int | None = 5) -> None:
        self.nodes = FakeNodes(version)
        self.coordinators: dict[str, int | None] = {}
        self.asked_here: list[tuple[messages.AddPartitionsToTxnRequest, int]] = []
        self.answer_here = answer({("mine", "t", 0): 0})
        self.time = 0.0
        self.verifier = TransactionVerifier(
            HERE,
            coordinator_of=lambda key: self.coordinators.get(key, THERE),
            ask_here=self._here,
            dial=self.nodes.dial,
            locate=self.nodes.locate,
            timeout_ms=30_000,
            now=lambda: self.time,
        )

    def _here(
        self, request: messages.AddPartitionsToTxnRequest, version: int, respond: Any
    ) -> None:
        self.asked_here.append((request, version))
        respond(self.answer_here)

    def ask(self, key: str = "mine", *partitions: int, epoch: int = 0) -> list[Codes]:
        answers: list[Codes] = []
        asked = [("t", index) for index in partitions or (0,)]
        self.verifier.ask(Question(key, 7, epoch, asked, answers.append))
        return answers


def answer(codes: dict[tuple[str, str, int], int], code: int = 0) -> Any:
    """An answer with a code for each id, topic and partition, as it comes off the wire."""
    found: dict[str, dict[str, list[messages.PartitionResult]]] = {}
    for (key, topic, index), one in codes.items():
        result = messages.PartitionResult(partition_index=index, partition_error_code=one)
        found.setdefault(key, {}).setdefault(topic, []).append(result)
    made = messages.AddPartitionsToTxnResponse(
        error_code=code,
        results_by_transaction=[
            messages.TransactionResult(
                transactional_id=key,
                topic_results=[
                    messages.TopicResult(name=topic, results_by_partition=results)
                    for topic, results in topics.items()
                ],
            )
            for key, topics in found.items()
        ],
    )
    return decode(type(made), 5, encode(made, 5))


@pytest.fixture
async def asking() -> Asking:
    return Asking()


async def test_what_comes_while_a_request_is_under_way_goes_with_the_next(asking: Asking) -> None:
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        first = asking.ask("mine", 0, 1)
        request = await node.asked()
        others = [asking.ask("a"), asking.ask("b")]
        await turns()
        assert len(node.requests) == 1
        [one] = request.transactions
        assert (one.transactional_id, one.producer_id, one.producer_epoch) == ("mine", 7, 0)
        assert one.verify_only
        assert [(topic.name, list(topic.partitions)) for topic in one.topics] == [("t", [0, 1])]
        node.answer(answer({("mine", "t", 0): 0, ("mine", "t", 1): 120}))
        second = await node.asked(2)
        assert first == [{("t", 0): 0, ("t", 1): 120}]
        assert [one.transactional_id for one in second.transactions] == ["a", "b"]
        node.answer(answer({("b", "t", 0): 51, ("a", "t", 0): 0}), 2)
        await turns()
        assert others == [[{("t", 0): 0}], [{("t", 0): 51}]]
        assert node.dialled == 1
    assert asking.verifier.failures == 2


async def test_an_id_this_node_coordinates_needs_no_socket(asking: Asking) -> None:
    asking.coordinators["mine"] = HERE
    assert asking.ask() == [{("t", 0): 0}]
    [(request, version)] = asking.asked_here
    assert version == 5
    assert request.transactions[0].verify_only
    assert asking.nodes.known == {}


async def test_an_id_without_a_coordinator_is_answered_at_once(asking: Asking) -> None:
    asking.coordinators["mine"] = None
    assert asking.ask() == [{("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}]


async def test_two_questions_about_one_id_are_asked_one_after_the_other(asking: Asking) -> None:
    """No epoch that somebody made up pushes out the true producer's question."""
    node = asking.nodes[THERE]
    true, made_up = asking.ask(epoch=3), asking.ask(epoch=32767)
    async with running(asking.verifier.run):
        request = await node.asked()
        assert [one.producer_epoch for one in request.transactions] == [3]
        node.answer(answer({("mine", "t", 0): 0}))
        request = await node.asked(2)
        assert [one.producer_epoch for one in request.transactions] == [32767]
        node.answer(answer({("mine", "t", 0): 90}), 2)
        await turns()
    assert (true, made_up) == ([{("t", 0): 0}], [{("t", 0): 90}])


@pytest.mark.parametrize("version", [None, 3])
async def test_a_node_of_before_verification_lets_everything_pass(version: int | None) -> None:
    """T8.12: KAFKA-16992."""
    asking = Asking(version)
    found = [asking.ask(), asking.ask()]
    async with running(asking.verifier.run):
        await turns(5)
    assert found == [[{("t", 0): 0}], [{("t", 0): 0}]]
    assert asking.nodes[THERE].requests == []


async def test_a_lost_connection_is_told_and_the_next_question_opens_another(
    asking: Asking,
) -> None:
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        first = asking.ask()
        await node.asked()
        second = asking.ask("a")
        node.hang_up()
        await turns(5)
        assert first == second == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}]
        assert node.closed == 1
        third = asking.ask()
        await node.asked(2)
        node.answer(answer({("mine", "t", 0): 0}), 2)
        await turns()
        assert third == [{("t", 0): 0}]
        assert node.dialled == 2


async def test_a_node_that_cannot_be_reached_is_told(asking: Asking) -> None:
    asking.nodes[THERE].is_reachable = False
    found = asking.ask()
    async with running(asking.verifier.run):
        await turns(5)
    assert found == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}]


async def test_who_waits_for_a_node_that_hangs_is_told_when_another_leads(asking: Asking) -> None:
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        under_way, other = asking.ask(), asking.ask("other")
        await node.asked()
        waiting = asking.ask()
        asking.coordinators["mine"] = 3
        asking.verifier.metadata_changed()
        moved = {("t", 0): ErrorCode.NOT_COORDINATOR}
        assert (under_way, waiting, other) == ([moved], [moved], [])
        node.answer(answer({("mine", "t", 0): 0, ("other", "t", 0): 0}))
        await turns()
        assert (under_way, other) == ([moved], [{("t", 0): 0}])


async def test_a_node_that_hangs_and_coordinates_nothing_any_more_is_given_up(
    asking: Asking,
) -> None:
    """Else nobody could ask it, when it is back, before the request that it lost timed out."""
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        asking.ask()
        await node.asked()
        asking.coordinators["mine"] = 3
        asking.verifier.metadata_changed()
        await turns(5)
        asking.coordinators["mine"] = THERE
        again = asking.ask()
        await node.asked(2)
        node.answer(answer({("mine", "t", 0): 0}), 2)
        await turns()
        assert (again, node.closed, node.dialled) == ([{("t", 0): 0}], 1, 2)


@pytest.mark.parametrize(("code", "told"), [(31, 48), (-1, -1), (999, -1)])
async def test_a_code_for_the_whole_request_is_told_to_all(
    asking: Asking, code: int, told: int
) -> None:
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        found = asking.ask("mine", 0, 1)
        await node.asked()
        node.answer(answer({}, code))
        await turns()
    assert found == [{("t", 0): told, ("t", 1): told}]


async def test_a_partition_that_an_answer_leaves_out_is_not_vouched_for(asking: Asking) -> None:
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        found = asking.ask("mine", 0, 1)
        await node.asked()
        node.answer(answer({("mine", "t", 0): 0}))
        await turns()
    assert found == [{("t", 0): 0, ("t", 1): ErrorCode.NETWORK_EXCEPTION}]


async def test_how_long_questions_take_is_measured(asking: Asking) -> None:
    node = asking.nodes[THERE]
    async with running(asking.verifier.run):
        asking.ask()
        await node.asked()
        asking.time = 0.3
        node.answer(answer({("mine", "t", 0): 0}))
        await turns()
    assert asking.verifier.latency.worst == 0.3
    assert asking.verifier.failures == 0
