"""FindCoordinator, and where groups live (docs/spec/coordinator.md §1.1 to §1.3; C1.1, C1.2)."""

from __future__ import annotations

import pytest

from barnabas.coordinator.cooperative import CooperativeScheduler
from barnabas.coordinator.find_coordinator import ANSWER_WAIT_S, FindCoordinatorHandler
from barnabas.coordinator.ports import OFFSETS_TOPIC, TRANSACTION_TOPIC, TransactionLookup
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.coordinator.coordinator_harness import CODES, CoordinatorHarness, partition_of

OUTSIDE = "PLAINTEXT"


@pytest.fixture
def harness(harness: CoordinatorHarness) -> CoordinatorHarness:
    harness.topics.endpoints[partition_of("g"), OUTSIDE] = (3, "node3", 9094)
    return harness


@pytest.mark.parametrize("version", range(4))
def test_the_leader_of_the_offsets_partition_coordinates(
    harness: CoordinatorHarness, version: int
) -> None:
    request = FindCoordinatorRequest(key="g")
    asked = harness.ask("find_coordinator", request, version, caller=OUTSIDE)
    answer = asked.answer
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 3, "node3", 9094)


def test_the_first_question_in_a_new_cluster_starts_the_creation_of_the_topic(
    harness: CoordinatorHarness,
) -> None:
    del harness.topics.counts[OFFSETS_TOPIC]
    asked = harness.ask("find_coordinator", FindCoordinatorRequest(key="g"), 3, caller=OUTSIDE)
    harness.wait(ANSWER_WAIT_S)
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (asked.answer.node_id, asked.answer.host, asked.answer.port) == (-1, "", -1)
    assert harness.topics.creations > 0


def test_without_a_leader_on_that_listener_there_is_no_coordinator_for_now(
    harness: CoordinatorHarness,
) -> None:
    asked = harness.ask("find_coordinator", FindCoordinatorRequest(key="g"), 1, caller="OTHER")
    harness.wait(ANSWER_WAIT_S)
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.topics.creations == 0


def test_a_question_waits_for_a_coordinator_that_is_about_to_be_elected(
    harness: CoordinatorHarness,
) -> None:
    endpoint = harness.topics.endpoints.pop((partition_of("g"), OUTSIDE))
    asked = [
        harness.ask("find_coordinator", FindCoordinatorRequest(key="g"), 3, caller=OUTSIDE),
        harness.ask(
            "find_coordinator", FindCoordinatorRequest(coordinator_keys=["g"]), 4, caller=OUTSIDE
        ),
    ]
    harness.coordinator.topics_changed()
    assert [one.answers for one in asked] == [[], []]
    harness.topics.endpoints[partition_of("g"), OUTSIDE] = endpoint
    harness.coordinator.topics_changed()
    assert [one.code for one in asked] == [ErrorCode.NONE] * 2
    harness.wait(2 * ANSWER_WAIT_S)
    assert [len(one.answers) for one in asked] == [1, 1]


def test_nobody_waits_for_a_coordinator_at_a_node_that_stops(harness: CoordinatorHarness) -> None:
    harness.topics.endpoints.clear()
    asked = harness.ask("find_coordinator", FindCoordinatorRequest(key="g"), 3, caller=OUTSIDE)
    harness.coordinator.stop()
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    late = harness.ask("find_coordinator", FindCoordinatorRequest(key="g"), 3, caller=OUTSIDE)
    assert late.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def finding(
    harness: CoordinatorHarness, transactions: TransactionLookup | None
) -> FindCoordinatorHandler:
    loop = harness.loop
    return FindCoordinatorHandler(harness.topics, transactions, loop, CooperativeScheduler(loop))


class TransactionTopics:
    """Implements coordinator.ports.TransactionLookup, in one partition per letter."""

    def __init__(self) -> None:
        self.count: int | None = 50
        self.leaders: dict[int, tuple[int, str, int]] = {}
        self.creations = 0

    def partition_count(self, topic: str) -> int | None:
        assert topic == TRANSACTION_TOPIC
        return self.count

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        return self.leaders.get(partition) if listener == OUTSIDE else None

    def create_transaction_topic(self) -> None:
        self.creations += 1


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_the_leader_of_the_transaction_log_partition_coordinates_an_id(
    harness: CoordinatorHarness, version: int
) -> None:
    """docs/spec/transactions.md check T1.1: 15 and the topic is created, then its leader.

    The id and the group of one name fall on partitions of topics with different counts.
    """
    topics = TransactionTopics()
    topics.count = None
    handler = finding(harness, topics)
    answers: list[FindCoordinatorResponse] = []
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=1)
    handler.find_coordinator(request, version, OUTSIDE, answers.append)
    harness.wait(ANSWER_WAIT_S)
    assert topics.creations > 0
    assert harness.topics.creations == 0
    topics.count = 50
    handler.find_coordinator(request, version, OUTSIDE, answers.append)
    assert len(answers) == 1, "it waits for the election"
    topics.leaders[group_partition("g", 50)] = (2, "node2", 9093)
    handler.retry_pending()
    found = [answer.coordinators[0] if answer.coordinators else answer for answer in answers]
    assert [one.error_code for one in found] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
    assert (found[1].node_id, found[1].host, found[1].port) == (2, "node2", 9093)


def test_a_transactional_producer_is_refused_for_good_and_told_why_where_they_are_off(
    harness: CoordinatorHarness,
) -> None:
    request = FindCoordinatorRequest(key="t", key_type=1)
    asked = harness.ask("find_coordinator", request, 2, caller=OUTSIDE)
    assert asked.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert asked.answer.error_message == "transactions are not served"


@pytest.mark.parametrize(("version", "code"), [(4, 42), (5, 42), (6, 15)])
def test_share_groups_have_no_coordinator_as_in_kafka_and_nobody_waits_for_one(
    harness: CoordinatorHarness, version: int, code: int
) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g:id:0"], key_type=2)
    [told] = harness.ask("find_coordinator", request, version, caller=OUTSIDE).answer.coordinators
    assert (told.error_code, told.node_id) == (code, -1)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_several_groups_are_found_at_once(harness: CoordinatorHarness, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g", "g"])
    found = harness.ask("find_coordinator", request, version, caller=OUTSIDE).answer.coordinators
    assert [(coordinator.error_code, coordinator.node_id) for coordinator in found] == [(0, 3)] * 2


def test_other_kinds_of_keys_have_no_coordinator_here(harness: CoordinatorHarness) -> None:
    request = FindCoordinatorRequest(key="g", key_type=7)
    assert (
        harness.ask("find_coordinator", request, 2, caller=OUTSIDE).code
        is ErrorCode.INVALID_REQUEST
    )


def test_several_keys_are_answered_one_by_one(harness: CoordinatorHarness) -> None:
    away = next(name for name in "abcdefgh" if partition_of(name) != partition_of("g"))
    request = FindCoordinatorRequest(coordinator_keys=["g", away, "g"])
    asked = harness.ask("find_coordinator", request, 4, caller=OUTSIDE)
    harness.wait(ANSWER_WAIT_S)
    found = asked.answer.coordinators
    assert [item.key for item in found] == ["g", away, "g"]
    codes = [CODES[item.error_code] for item in found]
    assert codes == [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]


def test_a_node_that_still_loads_the_group_is_its_coordinator_all_the_same(
    harness: CoordinatorHarness,
) -> None:
    harness.coordinator.stop()
    asked = harness.ask("find_coordinator", FindCoordinatorRequest(key="g"), 3, caller=OUTSIDE)
    assert asked.code is ErrorCode.NONE


def test_the_empty_group_lives_in_partition_0(harness: CoordinatorHarness) -> None:
    harness.topics.endpoints[0, OUTSIDE] = (5, "node5", 9096)
    asked = harness.ask("find_coordinator", FindCoordinatorRequest(key=""), 3, caller=OUTSIDE)
    assert asked.answer.node_id == 5
