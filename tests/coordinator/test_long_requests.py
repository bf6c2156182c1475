"""Requests that name very much are served over many turns of the loop, others in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pytest

from barnabas.coordinator import find_coordinator, group_administration, rebalance
from barnabas.coordinator.cooperative import ITEMS_PER_TURN, STEPS_PER_TURN
from barnabas.coordinator.find_coordinator import ANSWER_WAIT_S
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.rebalance import REMOVALS_LOGGED
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_groups,
    describe_groups,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.coordinator.coordinator_harness import CALLER, PARTITIONS, Asked, CoordinatorHarness
from tests.coordinator.test_many_members import COUNT, in_one_group, in_turns, synced

T = TypeVar("T")

OUTSIDE = "PLAINTEXT"
TURN_CHARACTERS = 2 * ITEMS_PER_TURN * find_coordinator.CHARACTERS_PER_STEP


@pytest.fixture
def crowded(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    return make_harness(initial_rebalance_delay_ms=3000)


class Counter:
    """Stands for a function and counts what it was called with."""

    def __init__(
        self, module: Any, name: str, weigh: Callable[[Any], int], patch: pytest.MonkeyPatch
    ) -> None:
        self.count = 0
        self._weigh = weigh
        self._do = getattr(module, name)
        patch.setattr(module, name, self)

    def __call__(self, argument: Any) -> Any:
        self.count += self._weigh(argument)
        return self._do(argument)

    def get(self) -> int:
        return self.count


def led_everywhere(harness: CoordinatorHarness) -> None:
    for partition in range(PARTITIONS):
        harness.topics.endpoints[partition, OUTSIDE] = (partition, f"node{partition}", 9094)


def looking_for(harness: CoordinatorHarness, keys: list[str]) -> Asked:
    request = FindCoordinatorRequest(coordinator_keys=keys)
    return harness.hand_in("find_coordinator", request, 4, caller=OUTSIDE)


def test_long_names_of_groups_are_hashed_over_many_turns(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_everywhere(harness)
    names = [f"{number}" + "x" * 32_000 for number in range(50)]
    hashed = Counter(find_coordinator, "java_hash", len, monkeypatch)
    asked = looking_for(harness, names)
    first = hashed.count
    assert not asked.is_answered
    growth = in_turns(harness.loop, hashed.get, 0.1, monkeypatch)
    assert sum(growth) + first == sum(map(len, names))
    assert max(first, *growth) <= TURN_CHARACTERS
    answers = asked.answer.coordinators
    assert [one.key for one in answers] == names
    alone = [looking_for(harness, [name]).answer.coordinators[0] for name in names]
    assert answers == alone


def test_a_long_question_is_asked_again_when_the_metadata_changed_meanwhile(
    harness: CoordinatorHarness,
) -> None:
    names = [f"{number}" for number in range(2 * ITEMS_PER_TURN)]
    asked = looking_for(harness, names)
    led_everywhere(harness)
    harness.coordinator.topics_changed()
    harness.turn()
    assert not asked.is_answered, "its first names were looked up before"
    harness.coordinator.topics_changed()
    harness.turn()
    assert {one.error_code for one in asked.answer.coordinators} == {ErrorCode.NONE}
    harness.wait(2 * ANSWER_WAIT_S)
    assert len(asked.answers) == 1


def test_a_change_while_a_long_question_is_looked_up_is_not_missed(
    harness: CoordinatorHarness,
) -> None:
    names = [f"{number}" for number in range(4 * ITEMS_PER_TURN)]
    asked = looking_for(harness, names)
    harness.turn()
    assert not asked.is_answered
    harness.coordinator.topics_changed()  # looks up the first names again
    led_everywhere(harness)
    harness.coordinator.topics_changed()
    harness.turn()
    assert {one.error_code for one in asked.answer.coordinators} == {ErrorCode.NONE}


def test_a_long_question_without_an_answer_is_given_up_in_the_end(
    harness: CoordinatorHarness,
) -> None:
    asked = looking_for(harness, [f"{number}" for number in range(2 * ITEMS_PER_TURN)])
    harness.wait(ANSWER_WAIT_S)
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert {one.error_code for one in asked.answer.coordinators} == {missing}


def leaving(harness: CoordinatorHarness, members: list[str]) -> Asked:
    leavers = [leave_group.Member(member_id=one) for one in members]
    request = leave_group.LeaveGroupRequest(group_id="g", members=leavers)
    return harness.hand_in("leave_group", request, 4)


def test_members_who_leave_in_one_request_go_a_slice_in_each_turn(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [one.answer.member_id for one in in_one_group(crowded, monkeypatch)]
    group = crowded.group()
    asked = leaving(crowded, [*members, "nobody"])
    assert COUNT - len(group.members) == ITEMS_PER_TURN
    assert not asked.is_answered
    gone = in_turns(crowded.loop, lambda: COUNT - len(group.members), 0.1, monkeypatch)
    assert max(gone) <= ITEMS_PER_TURN
    assert group.state is GroupState.EMPTY
    results = asked.answer.members
    assert [one.member_id for one in results] == [*members, "nobody"]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in results] == [ErrorCode.NONE] * COUNT + [unknown]


def test_who_leaves_a_group_that_moves_meanwhile_is_told_so(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [one.answer.member_id for one in in_one_group(crowded, monkeypatch)]
    asked = leaving(crowded, members)
    crowded.coordinator.resign()
    crowded.turn()
    assert asked.code is ErrorCode.NOT_COORDINATOR
    assert not asked.answer.members


def test_a_large_group_is_described_once_and_a_slice_in_each_turn(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [one.answer for one in in_one_group(crowded, monkeypatch)]
    members = [one.member_id for one in answers]
    listed = Counter(group_administration, "_list_member", lambda _: 1, monkeypatch)
    request = describe_groups.DescribeGroupsRequest(groups=["g", "nosuch", "g"])
    asked = crowded.hand_in("describe_groups", request, 4)
    assert not asked.is_answered
    assert max(in_turns(crowded.loop, listed.get, 0.1, monkeypatch)) <= ITEMS_PER_TURN
    first, second = asked.answer.groups
    assert [one.member_id for one in first.members] == members
    assert second.group_state == GroupState.DEAD.value
    assert listed.count == COUNT


def test_large_groups_are_described_one_after_the_other(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_group(crowded, monkeypatch)
    listed = Counter(group_administration, "_list_member", lambda _: 1, monkeypatch)
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    asked = [crowded.hand_in("describe_groups", request, 4) for _ in range(5)]
    small = crowded.hand_in(
        "describe_groups", describe_groups.DescribeGroupsRequest(groups=["nosuch"]), 4
    )
    assert max(in_turns(crowded.loop, listed.get, 0.1, monkeypatch)) <= ITEMS_PER_TURN
    assert len({len(one.answer.groups[0].members) for one in asked}) == 1
    assert small.answer.groups[0].group_state == GroupState.DEAD.value


def test_a_description_that_fails_holds_up_no_other(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    with monkeypatch.context() as patched:
        patched.setattr(crowded.coordinator._administration, "_find", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            crowded.hand_in("describe_groups", request, 4)
    assert crowded.hand_in("describe_groups", request, 4).is_answered


def test_very_many_groups_are_deleted_over_many_turns(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"group-{number}" for number in range(COUNT)]
    harness.coordinator.registry.groups.clear()
    looked = Counter(harness.coordinator.registry, "ownership_problem", lambda _: 1, monkeypatch)
    asked = harness.hand_in(
        "delete_groups", delete_groups.DeleteGroupsRequest(groups_names=names), 1
    )
    assert not asked.is_answered
    assert max(in_turns(harness.loop, looked.get, 0.1, monkeypatch)) <= ITEMS_PER_TURN
    found = [(one.group_id, one.error_code) for one in asked.answer.results]
    assert found == [(name, ErrorCode.GROUP_ID_NOT_FOUND) for name in names]


def test_a_group_that_cannot_be_stored_is_refused_before_its_record_is_made(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [one.answer for one in in_one_group(crowded, monkeypatch)]
    members = [one.member_id for one in answers]
    monkeypatch.setattr(crowded.log, "bytes_max", 50 * COUNT)
    monkeypatch.setattr(rebalance, "record_of", lambda *_: pytest.fail("a record was made"))
    leader = answers[0].leader
    follower = synced(crowded, next(one for one in members if one != leader))
    asked = synced(crowded, leader, members)
    assert not asked.is_answered, "not within the call"
    crowded.turn()
    assert asked.code is follower.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert crowded.group().state is GroupState.PREPARING


MANY = 5 * STEPS_PER_TURN


def worked(harness: CoordinatorHarness, work: Generator[None, None, T]) -> tuple[T, int]:
    """What long work returns, and after how many turns."""
    turns = 0
    while True:
        try:
            next(work)
        except StopIteration as stop:
            answer: T = stop.value
            return answer, turns
        turns += 1
        harness.turn(1)


def offset_commit_in_turns(count: int) -> offset_commit.OffsetCommitRequest:
    """Partitions that exist and that do not, some named twice, one with too much metadata."""
    known = [
        offset_commit.Partition(partition_index=index % 4, committed_offset=index)
        for index in range(6)
    ]
    known[3].committed_metadata = "x" * 5000
    again = offset_commit.Partition(partition_index=0, committed_offset=9)
    unknown = [offset_commit.Partition(partition_index=index) for index in range(2, count)]
    return offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            offset_commit.Topic(name="orders", partitions=known),
            offset_commit.Topic(name="clicks", partitions=unknown),
            offset_commit.Topic(name="nowhere", partitions=unknown[:3]),
            offset_commit.Topic(name="orders", partitions=[again]),
        ],
    )


def test_a_commit_of_very_many_partitions_is_judged_in_turns_as_a_short_one(
    harness: CoordinatorHarness,
) -> None:
    short = harness.hand_in("offset_commit", offset_commit_in_turns(MANY), 7)
    harness.wait(1)
    stored = [harness.committed(index=index) for index in range(4)]
    harness.commit(77, topic="orders")
    asked = Asked(7)
    work = harness.coordinator.offset_commit_in_turns(
        offset_commit_in_turns(MANY), 7, CALLER, asked.reply
    )
    assert worked(harness, work)[1] >= MANY // STEPS_PER_TURN
    harness.wait(1)
    assert asked.answer == short.answer
    assert [harness.committed(index=index) for index in range(4)] == stored


def test_a_commit_whose_group_moves_while_it_is_judged_is_refused(
    harness: CoordinatorHarness,
) -> None:
    asked = Asked(7)
    work = harness.coordinator.offset_commit_in_turns(
        offset_commit_in_turns(MANY), 7, CALLER, asked.reply
    )
    next(work)
    harness.coordinator.resign()
    worked(harness, work)
    codes = {one.error_code for one in asked.answer.topics[0].partitions}
    assert codes == {ErrorCode.NOT_COORDINATOR}


def test_a_commit_that_no_batch_can_hold_is_refused_before_one_is_made(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.log, "bytes_max", 50)
    asked = Asked(7)
    worked(
        harness,
        harness.coordinator.offset_commit_in_turns(
            offset_commit_in_turns(MANY), 7, CALLER, asked.reply
        ),
    )
    first, *_ = asked.answer.topics[0].partitions
    assert first.error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert harness.committed() == -1


@pytest.mark.parametrize("version", [1, 7])
def test_very_many_offsets_are_fetched_in_turns_as_in_one(
    harness: CoordinatorHarness, version: int
) -> None:
    harness.commit(5)
    topic = offset_fetch.Topic(name="orders", partition_indexes=list(range(MANY)))
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic, topic])
    answer, turns = worked(harness, harness.coordinator.offset_fetch_in_turns(request, version))
    assert turns >= MANY // STEPS_PER_TURN
    assert answer == harness.coordinator.offset_fetch_now(request, version)


def test_offsets_of_a_group_that_moves_while_they_are_fetched_are_not_told(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(5)
    topic = offset_fetch.Topic(name="orders", partition_indexes=list(range(MANY)))
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic])
    work = harness.coordinator.offset_fetch_in_turns(request, 7)
    next(work)
    harness.coordinator.resign()
    answer, _ = worked(harness, work)
    assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, ())


def test_offsets_of_very_many_groups_are_fetched_in_turns(harness: CoordinatorHarness) -> None:
    harness.commit(5)
    every = offset_fetch.Group(group_id="g", topics=None)
    others = [offset_fetch.Group(group_id=f"{number}", topics=[]) for number in range(MANY)]
    request = offset_fetch.OffsetFetchRequest(groups=[every, *others, every])
    answer, turns = worked(harness, harness.coordinator.offset_fetch_in_turns(request, 8))
    assert turns >= MANY // STEPS_PER_TURN
    assert [one.group_id for one in answer.groups] == ["g", *(one.group_id for one in others)]
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5


def test_offsets_of_very_many_partitions_are_deleted_over_many_turns(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(5)
    harness.commit(6, topic="clicks")
    partitions = [offset_delete.Partition(partition_index=index) for index in range(MANY)]
    topics = [offset_delete.Topic(name="orders", partitions=partitions)]
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=topics)
    asked = harness.hand_in("offset_delete", request, 0)
    assert not asked.is_answered
    harness.wait(1)
    codes = [one.error_code for one in asked.answer.topics[0].partitions]
    assert codes == [0] * 4 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 4)
    assert (harness.committed(), harness.committed(topic="clicks")) == (-1, 6)


def test_a_list_of_groups_that_names_very_many_states_takes_many_turns(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(5)
    states = [f"{number}" for number in range(MANY)]
    request = list_groups.ListGroupsRequest(states_filter=[*states, "EMPTY"])
    asked = harness.hand_in("list_groups", request, 4)
    assert not asked.is_answered
    harness.wait(1)
    assert [one.group_id for one in asked.answer.groups] == ["g"]


def removals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "removed" in one.getMessage()]


def test_a_group_that_loses_very_many_members_logs_few_lines(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_one_group(crowded, monkeypatch)
    caplog.set_level(logging.INFO)
    crowded.wait(12)
    assert crowded.group().state is GroupState.EMPTY
    *lines, summary = removals(caplog)
    assert len(lines) == REMOVALS_LOGGED
    assert all("its session timed out" in line for line in lines)
    assert summary == f"removed further members group=g count={COUNT - REMOVALS_LOGGED}"


def test_members_who_go_one_by_one_have_their_lines(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(REMOVALS_LOGGED + 1):
        [member] = harness.stable(1)
        leaving(harness, [member])
        harness.turn()
    assert len(removals(caplog)) == REMOVALS_LOGGED + 1
