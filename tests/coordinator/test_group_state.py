"""The table of states is complete, every row is reached, and the drawing is the table.

Source: docs/spec/coordinator.md §1.5 and §5.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.coordinator.group import Group
from barnabas.coordinator.group_registry import GroupTerm
from barnabas.coordinator.group_state import NEXT, RULES, GroupState, drawing
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "coordinator.md"

Reach = Callable[[CoordinatorHarness], None]


def empty(harness: CoordinatorHarness) -> None:
    harness.commit(1)


def preparing(harness: CoordinatorHarness) -> None:
    harness.stable()
    harness.join()


def completing(harness: CoordinatorHarness) -> None:
    harness.join()


def stable(harness: CoordinatorHarness) -> None:
    harness.stable()


REACHED: dict[GroupState, Reach] = {
    GroupState.EMPTY: empty,
    GroupState.PREPARING: preparing,
    GroupState.COMPLETING: completing,
    GroupState.STABLE: stable,
}


@pytest.mark.parametrize("state", GroupState)
def test_every_state_has_a_row_in_both_tables(state: GroupState) -> None:
    assert GroupState.DEAD in NEXT[state]
    assert RULES[state].may_rebalance == (GroupState.PREPARING in NEXT[state])


@pytest.mark.parametrize("state", REACHED)
def test_every_row_is_reached(harness: CoordinatorHarness, state: GroupState) -> None:
    REACHED[state](harness)
    assert harness.group().state is state
    assert harness.group().rules is RULES[state]


@pytest.mark.parametrize("state", REACHED)
def test_a_group_of_any_state_dies_with_its_partition(
    harness: CoordinatorHarness, state: GroupState
) -> None:
    REACHED[state](harness)
    group = harness.group()
    harness.coordinator.on_resigned(group.term.partition, None)
    assert group.state is GroupState.DEAD
    assert "g" not in harness.coordinator.registry.groups


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_move_that_is_not_in_the_table_is_our_bug(state: GroupState, after: GroupState) -> None:
    group = Group("g", GroupTerm(0, 0), since_ms=1, state=state)
    if after in NEXT[state]:
        group.become(after, 2)
        assert (group.state, group.since_ms) == (after, 2)
    else:
        with pytest.raises(AssertionError, match=f"{state.name} -> {after.name}"):
            group.become(after, 2)


@pytest.mark.parametrize("state", REACHED)
def test_each_state_answers_as_its_row_says(harness: CoordinatorHarness, state: GroupState) -> None:
    REACHED[state](harness)
    group = harness.group()
    member = next(iter(group.members), "nobody")
    generation = group.generation
    assert harness.heartbeat(member, generation) is RULES[state].heartbeat
    commit = harness.commit(1, member_id=member, generation_id_or_member_epoch=generation)
    # an Empty group has no members, so only a commit without a generation passes
    expected = ErrorCode.UNKNOWN_MEMBER_ID if state is GroupState.EMPTY else RULES[state].commit
    assert codes_of(commit) == [expected]
    sync = harness.sync(member, generation)
    assert sync.code is RULES[state].sync


def test_the_drawing_in_the_docs_is_made_from_the_table() -> None:
    found = re.search(r"```mermaid\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == drawing()
