"""A group of very many members: its rebalances take many turns of the loop, each a short one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from barnabas.coordinator.cooperative import ITEMS_PER_TURN, CooperativeScheduler
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.timer import TURN_DEADLINES, Deadline, TimerQueue
from barnabas.protocol import consumer_protocol
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import join_group, sync_group
from tests.coordinator.coordinator_harness import Asked, CoordinatorHarness
from tests.sim.simulated_loop import SimulatedLoop

COUNT = 4 * ITEMS_PER_TURN + 1


def joining(number: int, member_id: str = "") -> join_group.JoinGroupRequest:
    subscription = consumer_protocol.Subscription(topics=[f"t{number}"])
    metadata = consumer_protocol.build_subscription(subscription)
    return join_group.JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[join_group.Protocol(name="range", metadata=metadata)],
    )


def in_turns(
    loop: SimulatedLoop, count: Callable[[], int], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """By how much ``count`` grew in each turn of the loop within these seconds."""
    seen = [count()]
    run_once: Callable[[], None] = getattr(loop, "_run_once")  # noqa: B009 - of asyncio, unlisted

    def counted() -> None:
        run_once()
        seen.append(count())

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_run_once", counted)
        loop.run_until_complete(asyncio.sleep(seconds))
    return [after - before for before, after in pairwise(seen)]


def answered(asked: Sequence[Asked]) -> Callable[[], int]:
    return lambda: sum(one.is_answered for one in asked)


def in_one_group(harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """As many members as take five slices, all of them answered."""
    asked = [harness.hand_in("join_group", joining(number), 2) for number in range(COUNT)]
    growth = in_turns(harness.loop, answered(asked), 8, monkeypatch)
    assert sum(growth) == COUNT
    assert max(growth) <= ITEMS_PER_TURN + 1
    return asked


@pytest.fixture
def crowded(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    return make_harness(initial_rebalance_delay_ms=3000)


def synced(harness: CoordinatorHarness, member_id: str, leader_of: Sequence[str] = ()) -> Asked:
    shares = [sync_group.Assignment(member_id=one, assignment=one.encode()) for one in leader_of]
    request = sync_group.SyncGroupRequest(
        group_id="g", member_id=member_id, generation_id=1, assignments=shares
    )
    return harness.hand_in("sync_group", request, 2)


def test_members_are_told_of_a_generation_a_slice_in_each_turn(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [one.answer for one in in_one_group(crowded, monkeypatch)]
    assert {(one.error_code, one.generation_id) for one in answers} == {(0, 1)}
    assert len({one.leader for one in answers}) == 1
    [leader] = [one for one in answers if one.leader == one.member_id]
    assert [one.member_id for one in leader.members] == [one.member_id for one in answers]
    assert not any(one.members for one in answers if one is not leader)


def test_what_a_large_group_subscribes_to_is_gathered_afterwards(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_group(crowded, monkeypatch)
    assert crowded.group().subscribed == {f"t{number}" for number in range(COUNT)}


def test_assignments_are_told_a_slice_in_each_turn(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [one.answer for one in in_one_group(crowded, monkeypatch)]
    members = [one.member_id for one in answers]
    leader = answers[0].leader
    asked = [synced(crowded, one) for one in members if one != leader]
    asked.append(synced(crowded, leader, members))
    assert max(in_turns(crowded.loop, answered(asked), 0.1, monkeypatch)) <= ITEMS_PER_TURN
    assert {one.answer.assignment for one in asked} == {one.encode() for one in members}
    assert crowded.group().state is GroupState.STABLE


def test_members_whose_sessions_end_together_are_removed_turn_by_turn(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_group(crowded, monkeypatch)
    group = crowded.group()
    crowded.wait(5)
    removed = in_turns(crowded.loop, lambda: COUNT - len(group.members), 6, monkeypatch)
    assert sum(removed) == COUNT
    assert max(removed) <= TURN_DEADLINES
    assert group.state is GroupState.EMPTY


def test_who_did_not_join_again_goes_turn_by_turn_and_the_others_go_on(
    crowded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [one.answer.member_id for one in in_one_group(crowded, monkeypatch)]
    group = crowded.group()
    newcomer = crowded.hand_in("join_group", joining(COUNT), 2)
    crowded.turn()
    assert group.state is GroupState.PREPARING
    crowded.coordinator._rebalancer._complete_join(group)
    late = crowded.hand_in("join_group", joining(COUNT - 1, members[-1]), 2)
    assert not late.is_answered
    gone = in_turns(crowded.loop, lambda: COUNT - len(group.members), 0.1, monkeypatch)
    assert max(gone) <= ITEMS_PER_TURN
    assert len(group.members) == 2
    assert newcomer.answer.generation_id == late.answer.generation_id == 2


def test_a_session_does_not_end_while_its_answer_is_due(crowded: CoordinatorHarness) -> None:
    asked = [crowded.hand_in("join_group", joining(number), 2) for number in range(COUNT)]
    crowded.turn()
    group = crowded.group()
    last = list(group.members.values())[-1]
    last.is_new = False
    crowded.coordinator._rebalancer._complete_join(group)
    assert last.join is None
    assert not asked[-1].is_answered
    crowded.coordinator._rebalancer._session_expired(group, last)
    crowded.turn(20)
    assert last.member_id in group.members
    assert asked[-1].code is ErrorCode.NONE


def test_a_group_that_ends_while_it_answers_answers_everybody(crowded: CoordinatorHarness) -> None:
    asked = [crowded.hand_in("join_group", joining(number), 2) for number in range(COUNT)]
    crowded.turn()
    group = crowded.group()
    crowded.coordinator._rebalancer._complete_join(group)
    crowded.coordinator._rebalancer.mark_dead(group, ErrorCode.NOT_COORDINATOR)
    crowded.turn(20)
    assert all(one.is_answered for one in asked)
    assert not any(member.session.is_running for member in group.members.values())


def test_up_to_a_slice_is_done_at_once_and_more_in_turns() -> None:
    loop = SimulatedLoop(1)
    done: list[int] = []
    scheduler = CooperativeScheduler(loop)
    scheduler.run(range(ITEMS_PER_TURN), done.append, lambda: done.append(-1))
    assert done == [*range(ITEMS_PER_TURN), -1]
    done.clear()
    scheduler.run(range(2 * ITEMS_PER_TURN + 1), done.append, lambda: done.append(-1))
    assert len(done) == ITEMS_PER_TURN
    rig_turns(loop)
    assert done == [*range(2 * ITEMS_PER_TURN + 1), -1]
    loop.close()


def test_deadlines_of_one_moment_expire_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SimulatedLoop(1)
    deadlines, expired = TimerQueue(loop), []
    for number in range(2 * TURN_DEADLINES):
        deadline = Deadline(lambda number=number: expired.append(number))  # type: ignore[misc]
        deadlines.start(deadline, 10)
    growth = in_turns(loop, lambda: len(expired), 0.1, monkeypatch)
    assert expired == list(range(2 * TURN_DEADLINES))
    assert max(growth) <= TURN_DEADLINES
    loop.close()


def rig_turns(loop: SimulatedLoop, seconds: float = 0.0) -> None:
    async def pause() -> None:
        for _ in range(10):
            await asyncio.sleep(seconds / 10)

    loop.run_until_complete(pause())
