"""Requests that name very much are served over many turns of the loop, others in between."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator import administration, discovery, rebalance
from barnabas.coordinator.discovery import PATIENCE_S
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.rebalance import FAREWELLS_TOLD
from barnabas.coordinator.slices import SLICE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_groups, describe_groups, leave_group
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.coordinator.rig import PARTITIONS, Asked, Rig
from tests.coordinator.test_many_members import COUNT, in_one_group, in_turns, synced

OUTSIDE = "PLAINTEXT"
TURN_CHARACTERS = 2 * SLICE * discovery.CHARACTERS


@pytest.fixture
def crowded(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig(initial_rebalance_delay_ms=3000)


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


def led_everywhere(rig: Rig) -> None:
    for partition in range(PARTITIONS):
        rig.topics.endpoints[partition, OUTSIDE] = (partition, f"node{partition}", 9094)


def looking_for(rig: Rig, keys: list[str]) -> Asked:
    request = FindCoordinatorRequest(coordinator_keys=keys)
    return rig.hand_in("find_coordinator", request, 4, caller=OUTSIDE)


def test_long_names_of_groups_are_hashed_over_many_turns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_everywhere(rig)
    names = [f"{number}" + "x" * 32_000 for number in range(50)]
    hashed = Counter(discovery, "java_hash", len, monkeypatch)
    asked = looking_for(rig, names)
    first = hashed.count
    assert not asked.is_answered
    growth = in_turns(rig.loop, hashed.get, 0.1, monkeypatch)
    assert sum(growth) + first == sum(map(len, names))
    assert max(first, *growth) <= TURN_CHARACTERS
    answers = asked.answer.coordinators
    assert [one.key for one in answers] == names
    alone = [looking_for(rig, [name]).answer.coordinators[0] for name in names]
    assert answers == alone


def test_a_long_question_is_asked_again_when_the_metadata_changed_meanwhile(rig: Rig) -> None:
    names = [f"{number}" for number in range(2 * SLICE)]
    asked = looking_for(rig, names)
    led_everywhere(rig)
    rig.coordinator.topics_changed()
    rig.turn()
    assert not asked.is_answered, "its first names were looked up before"
    rig.coordinator.topics_changed()
    rig.turn()
    assert {one.error_code for one in asked.answer.coordinators} == {ErrorCode.NONE}
    rig.wait(2 * PATIENCE_S)
    assert len(asked.answers) == 1


def test_a_change_while_a_long_question_is_looked_up_is_not_missed(rig: Rig) -> None:
    names = [f"{number}" for number in range(4 * SLICE)]
    asked = looking_for(rig, names)
    rig.turn()
    assert not asked.is_answered
    rig.coordinator.topics_changed()  # looks up the first names again
    led_everywhere(rig)
    rig.coordinator.topics_changed()
    rig.turn()
    assert {one.error_code for one in asked.answer.coordinators} == {ErrorCode.NONE}


def test_a_long_question_without_an_answer_is_given_up_in_the_end(rig: Rig) -> None:
    asked = looking_for(rig, [f"{number}" for number in range(2 * SLICE)])
    rig.wait(PATIENCE_S)
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert {one.error_code for one in asked.answer.coordinators} == {missing}


def leaving(rig: Rig, members: list[str]) -> Asked:
    leavers = [leave_group.Member(member_id=one) for one in members]
    request = leave_group.LeaveGroupRequest(group_id="g", members=leavers)
    return rig.hand_in("leave_group", request, 4)


def test_members_who_leave_in_one_request_go_a_slice_in_each_turn(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [one.answer.member_id for one in in_one_group(crowded, monkeypatch)]
    group = crowded.group()
    asked = leaving(crowded, [*members, "nobody"])
    assert COUNT - len(group.members) == SLICE
    assert not asked.is_answered
    gone = in_turns(crowded.loop, lambda: COUNT - len(group.members), 0.1, monkeypatch)
    assert max(gone) <= SLICE
    assert group.state is GroupState.EMPTY
    results = asked.answer.members
    assert [one.member_id for one in results] == [*members, "nobody"]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in results] == [ErrorCode.NONE] * COUNT + [unknown]


def test_who_leaves_a_group_that_moves_meanwhile_is_told_so(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [one.answer.member_id for one in in_one_group(crowded, monkeypatch)]
    asked = leaving(crowded, members)
    crowded.coordinator.resign()
    crowded.turn()
    assert asked.code is ErrorCode.NOT_COORDINATOR
    assert not asked.answer.members


def test_a_large_group_is_described_a_slice_in_each_turn(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [one.answer for one in in_one_group(crowded, monkeypatch)]
    members = [one.member_id for one in answers]
    listed = Counter(administration, "_list_member", lambda _: 1, monkeypatch)
    request = describe_groups.DescribeGroupsRequest(groups=["g", "nosuch", "g"])
    asked = crowded.hand_in("describe_groups", request, 4)
    assert not asked.is_answered
    assert max(in_turns(crowded.loop, listed.get, 0.1, monkeypatch)) <= SLICE
    first, second, third = asked.answer.groups
    assert [one.member_id for one in first.members] == members
    assert second.group_state == GroupState.DEAD.value
    assert third == first
    assert listed.count == COUNT


def test_large_groups_are_described_one_after_the_other(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_group(crowded, monkeypatch)
    listed = Counter(administration, "_list_member", lambda _: 1, monkeypatch)
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    asked = [crowded.hand_in("describe_groups", request, 4) for _ in range(5)]
    small = crowded.hand_in(
        "describe_groups", describe_groups.DescribeGroupsRequest(groups=["nosuch"]), 4
    )
    assert max(in_turns(crowded.loop, listed.get, 0.1, monkeypatch)) <= SLICE
    assert len({len(one.answer.groups[0].members) for one in asked}) == 1
    assert small.answer.groups[0].group_state == GroupState.DEAD.value


def test_a_description_that_fails_holds_up_no_other(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    with monkeypatch.context() as patched:
        patched.setattr(crowded.coordinator._administration, "_find", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            crowded.hand_in("describe_groups", request, 4)
    assert crowded.hand_in("describe_groups", request, 4).is_answered


def test_very_many_groups_are_deleted_over_many_turns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"group-{number}" for number in range(COUNT)]
    rig.coordinator.directory.groups.clear()
    looked = Counter(rig.coordinator.directory, "problem", lambda _: 1, monkeypatch)
    asked = rig.hand_in("delete_groups", delete_groups.DeleteGroupsRequest(groups_names=names), 1)
    assert not asked.is_answered
    assert max(in_turns(rig.loop, looked.get, 0.1, monkeypatch)) <= SLICE
    found = [(one.group_id, one.error_code) for one in asked.answer.results]
    assert found == [(name, ErrorCode.GROUP_ID_NOT_FOUND) for name in names]


def test_a_group_that_cannot_be_stored_is_refused_before_its_record_is_made(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch
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


def farewells(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "removed" in one.getMessage()]


def test_a_group_that_loses_very_many_members_logs_few_lines(
    crowded: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_one_group(crowded, monkeypatch)
    caplog.set_level(logging.INFO)
    crowded.wait(12)
    assert crowded.group().state is GroupState.EMPTY
    *lines, summary = farewells(caplog)
    assert len(lines) == FAREWELLS_TOLD
    assert all("its session timed out" in line for line in lines)
    assert summary == f"removed further members group=g count={COUNT - FAREWELLS_TOLD}"


def test_members_who_go_one_by_one_have_their_lines(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(FAREWELLS_TOLD + 1):
        [member] = rig.stable(1)
        leaving(rig, [member])
        rig.turn()
    assert len(farewells(caplog)) == FAREWELLS_TOLD + 1
