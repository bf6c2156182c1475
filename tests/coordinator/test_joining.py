"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of dynamic members.

Source: docs/spec/coordinator.md §5; §5.9 checks C5.1 to C5.4, C5.6 and C5.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group_state import GroupState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.rig import Rig, codes_of

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(4))
def test_two_members_one_leads_and_knows_both_the_other_knows_nobody(
    rig: Rig, version: int
) -> None:
    first = rig.join(version=version).answer.member_id
    follower = rig.join(version=version)
    leader = rig.join(first, version=version)
    assert leader.answer.generation_id == follower.answer.generation_id == 2
    assert leader.answer.leader == follower.answer.leader == first
    members = {member.member_id: member.metadata for member in leader.answer.members}
    assert members.keys() == {first, follower.answer.member_id}
    assert all(members.values())
    assert not follower.answer.members
    assert leader.answer.protocol_name == "range"


def test_from_version_7_the_answer_names_the_protocol_type(rig: Rig) -> None:
    member_id = rig.join(version=7).answer.member_id
    joined = rig.join(member_id, version=7)
    assert joined.code is ErrorCode.NONE
    assert joined.answer.protocol_type == "consumer"
    assert rig.join("nobody", version=7).answer.protocol_name is None
    assert rig.join("nobody", version=6).answer.protocol_name == ""


def test_from_version_4_a_member_learns_its_id_first_and_joins_with_it(rig: Rig) -> None:
    asked = rig.join(version=4)
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    member_id = asked.answer.member_id
    assert member_id.startswith("app-")
    joined = rig.join(member_id, version=4)
    assert joined.code is ErrorCode.NONE
    assert joined.answer.member_id == member_id


def test_an_abandoned_member_id_delays_a_join_by_at_most_its_session_timeout(rig: Rig) -> None:
    (member,) = rig.stable()
    rig.join(version=4)  # never comes back
    asked = rig.join(member)
    rig.wait(9.5)
    assert not asked.is_answered
    rig.wait(0.6)
    assert asked.code is ErrorCode.NONE


def test_a_promised_member_id_may_leave_and_then_delays_nobody(rig: Rig) -> None:
    (member,) = rig.stable()
    promised = rig.join(version=4).answer.member_id
    asked = rig.join(member)
    assert not asked.is_answered
    assert rig.leave(promised).answer.members[0].error_code == 0
    assert asked.code is ErrorCode.NONE


def test_a_silent_member_goes_after_its_session_and_the_others_are_told_27(rig: Rig) -> None:
    first, _second = rig.stable(2, session_timeout_ms=10_000)
    generation = rig.group().generation
    for _ in range(3):
        rig.wait(3)
        assert rig.heartbeat(first, generation) is ErrorCode.NONE
    rig.wait(1.5)
    assert rig.heartbeat(first, generation) is REBALANCE
    asked = rig.join(first)
    assert asked.answer.generation_id == generation + 1
    assert [member.member_id for member in asked.answer.members] == [first]


def test_heartbeats_and_commits_keep_a_member_alive(rig: Rig) -> None:
    (member,) = rig.stable(session_timeout_ms=10_000)
    for _ in range(4):
        rig.wait(6)
        assert rig.heartbeat(member, 1) is ErrorCode.NONE
        rig.wait(6)
        commit = rig.commit(1, member_id=member, generation_id_or_member_epoch=1)
        assert codes_of(commit) == [ErrorCode.NONE]
    assert rig.group().state is GroupState.STABLE
    rig.wait(10.1)
    assert rig.group().state is GroupState.EMPTY


def test_a_member_that_heartbeats_but_never_syncs_goes_after_the_rebalance_timeout(
    rig: Rig,
) -> None:  # KAFKA-12890
    first = rig.join(rebalance_timeout_ms=20_000).answer.member_id
    second = rig.join(rebalance_timeout_ms=20_000)
    rig.join(first, rebalance_timeout_ms=20_000)
    assert rig.sync(first, 2, {first: b"all"}).answer.assignment == b"all"
    follower = second.answer.member_id
    for _ in range(4):
        rig.wait(4.9)
        assert rig.heartbeat(first, 2) is ErrorCode.NONE
        assert rig.heartbeat(follower, 2) is ErrorCode.NONE
    rig.wait(0.5)
    assert rig.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(first, 2) is REBALANCE


def test_the_third_member_of_a_group_of_two_is_refused(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(group_members_max=2)
    rig.stable(2)
    third = rig.join()
    assert third.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert third.answer.member_id == ""
    assert rig.group().state is GroupState.STABLE


def test_while_preparing_the_first_to_rejoin_have_the_room(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(group_members_max=2)
    first, second = rig.stable(2)
    leader = rig.join(first)
    assert rig.group().state is GroupState.PREPARING
    newcomer = rig.join()
    assert not newcomer.is_answered
    late = rig.join(second)
    assert late.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert leader.code is newcomer.code is ErrorCode.NONE
    assert second not in rig.group().members


def test_a_commit_is_taken_while_preparing_and_refused_while_completing(rig: Rig) -> None:
    (member,) = rig.stable()
    newcomer = rig.join()
    commit = rig.commit(1, member_id=member, generation_id_or_member_epoch=1)
    assert codes_of(commit) == [ErrorCode.NONE]
    rig.join(member)
    assert newcomer.is_answered
    commit = rig.commit(2, member_id=member, generation_id_or_member_epoch=2)
    assert codes_of(commit) == [REBALANCE]


# -- joining ---------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [5999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(rig: Rig, timeout_ms: int) -> None:
    assert rig.join(session_timeout_ms=timeout_ms).code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert "g" not in rig.coordinator.directory.groups


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})])
def test_a_first_member_needs_a_protocol_type_and_a_protocol(
    rig: Rig, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    asked = rig.join(protocol_type=protocol_type, protocols=protocols)
    assert asked.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_must_share_a_protocol_with_everybody_and_the_type(rig: Rig) -> None:
    rig.join(protocols={"range": b"", "sticky": b""})
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(protocols={"roundrobin": b""}).code is inconsistent
    assert rig.join(protocols={"range": b""}, protocol_type="connect").code is inconsistent
    assert not rig.join(protocols={"sticky": b"", "roundrobin": b""}).is_answered


def test_the_protocol_most_members_prefer_among_the_shared_wins(rig: Rig) -> None:
    both = {"range": b"r", "sticky": b"s"}
    turned = {"sticky": b"s", "range": b"r"}
    first = rig.join(protocols=both).answer.member_id
    second, third = rig.join(protocols=turned), rig.join(protocols=turned)
    rig.join(first, protocols=both)
    assert second.answer.protocol_name == third.answer.protocol_name == "sticky"


def test_a_tie_is_decided_by_the_order_of_the_leader(rig: Rig) -> None:
    first = rig.join(protocols={"b": b"", "a": b""}).answer.member_id
    second = rig.join(protocols={"a": b"", "b": b""})
    assert rig.join(first, protocols={"b": b"", "a": b""}).answer.leader == first
    assert second.answer.protocol_name == "b"


def test_a_follower_that_asks_again_gets_the_present_generation(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    generation = rig.group().generation
    asked = rig.join(follower)
    assert asked.answer.generation_id == generation
    assert not asked.answer.members
    assert rig.group().state is GroupState.STABLE
    rig.join(leader)
    assert rig.group().state is GroupState.PREPARING


def test_a_changed_subscription_starts_a_rebalance(rig: Rig) -> None:
    _, follower = rig.stable(2)
    asked = rig.join(follower, topics=["orders", "clicks"])
    assert not asked.is_answered
    assert rig.group().state is GroupState.PREPARING


def test_while_completing_the_same_join_again_gets_the_same_answer(rig: Rig) -> None:
    first = rig.join()
    again = rig.join(first.answer.member_id)
    assert again.answer == first.answer
    assert rig.group().state is GroupState.COMPLETING


def test_a_second_join_of_one_member_answers_the_first_with_16(rig: Rig) -> None:  # KAFKA-20938
    leader, follower = rig.stable(2)
    first = rig.join(leader)
    second = rig.join(leader)
    assert first.code is ErrorCode.NOT_COORDINATOR
    assert not second.is_answered
    rig.join(follower)
    assert second.code is ErrorCode.NONE


def test_who_does_not_rejoin_within_the_rebalance_timeout_goes(rig: Rig) -> None:
    first, second = rig.stable(2, rebalance_timeout_ms=15_000, session_timeout_ms=60_000)
    asked = rig.join(first, rebalance_timeout_ms=15_000, session_timeout_ms=60_000)
    rig.wait(14.9)
    assert not asked.is_answered
    rig.wait(0.2)
    assert asked.code is ErrorCode.NONE
    assert second not in rig.group().members


def test_when_the_leader_does_not_rejoin_somebody_who_did_leads(rig: Rig) -> None:
    _, second = rig.stable(2, rebalance_timeout_ms=15_000, session_timeout_ms=60_000)
    asked = rig.join(second, topics=["clicks"], rebalance_timeout_ms=15_000)
    rig.wait(15.1)
    assert asked.answer.leader == second


def test_a_rebalance_waits_for_the_longest_rebalance_timeout(rig: Rig) -> None:
    first = rig.join(rebalance_timeout_ms=10_000, session_timeout_ms=100_000).answer.member_id
    second = rig.join(rebalance_timeout_ms=50_000, session_timeout_ms=100_000)
    rig.join(first, rebalance_timeout_ms=10_000, session_timeout_ms=100_000)
    third = rig.join(second.answer.member_id, topics=["clicks"], rebalance_timeout_ms=50_000)
    rig.wait(49)
    assert not third.is_answered
    rig.wait(1.1)
    assert third.is_answered


def test_a_new_member_whose_client_is_gone_stays_five_minutes_at_most(rig: Rig) -> None:
    rig.stable(rebalance_timeout_ms=600_000, session_timeout_ms=1_800_000)
    asked = rig.join(rebalance_timeout_ms=600_000)
    rig.wait(299)
    assert not asked.is_answered
    rig.wait(1.5)
    assert asked.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert asked.answer.member_id == ""


def test_a_known_member_of_an_emptied_group_is_unknown(rig: Rig) -> None:
    (member,) = rig.stable()
    rig.leave(member)
    assert rig.group().state is GroupState.EMPTY
    assert rig.join(member).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_emptied_group_takes_another_protocol_type(rig: Rig) -> None:
    (member,) = rig.stable()
    rig.leave(member)
    asked = rig.join(protocol_type="connect", protocols={"eager": b"x"})
    assert asked.answer.generation_id == 3
    assert rig.group().protocol_type == "connect"


# -- the initial delay -----------------------------------------------------------------------


def test_a_first_rebalance_waits_for_others_and_longer_while_they_come(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(initial_rebalance_delay_ms=3000)
    first = rig.join()
    rig.wait(2.9)
    second = rig.join()
    rig.wait(0.2)
    assert not first.is_answered
    rig.wait(3)
    assert first.answer.generation_id == second.answer.generation_id == 1


def test_the_initial_delay_never_exceeds_the_rebalance_timeout(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(initial_rebalance_delay_ms=3000)
    first = rig.join(rebalance_timeout_ms=7000)
    for _ in range(3):
        rig.wait(2)
        rig.join(rebalance_timeout_ms=7000)
    assert not first.is_answered
    rig.wait(1.1)
    assert first.is_answered


def test_a_group_that_was_empty_again_waits_but_not_longer(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(initial_rebalance_delay_ms=3000)
    first = rig.join()
    rig.wait(3.1)
    rig.sync(first.answer.member_id, 1, {})
    rig.leave(first.answer.member_id)
    asked = rig.join()
    rig.wait(2)
    rig.join()
    assert not asked.is_answered
    rig.wait(1.1)
    assert asked.answer.generation_id == 3


def test_members_that_all_stay_away_are_waited_for_until_their_sessions_end(rig: Rig) -> None:
    fields: dict[str, Any] = {
        "version": 5,
        "group_instance_id": "a",
        "rebalance_timeout_ms": 10_000,
        "session_timeout_ms": 60_000,
    }
    member = rig.join(**fields).answer.member_id
    rig.sync(member, 1, {}, group_instance_id="a")
    newcomer = rig.join(rebalance_timeout_ms=10_000)  # and then only the static one is left
    rig.leave(next(name for name in rig.group().members if name != member))
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(2):
        rig.wait(10.1)
        assert rig.group().state is GroupState.PREPARING
    assert rig.join(member, **fields).answer.generation_id == 2


def test_what_cannot_be_stored_of_an_emptied_group_does_not_keep_it_from_being_empty(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    (member,) = rig.stable()
    rig.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.leave(member)
    assert rig.group().state is GroupState.EMPTY
    assert "empty group not stored" in caplog.text
