"""Members and groups that are gone are freed at once: the collector looks at old objects seldom.

Source: docs/decisions/0013-pauses-of-the-collector.md.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from barnabas.coordinator.consumer_groups.consumer_group import ConsumerGroup
from barnabas.coordinator.consumer_groups.member import ConsumerMember
from barnabas.coordinator.group import Group, Member

from .consumer_groups.beats import Beats
from .coordinator_harness import CoordinatorHarness, Make

COUNT = 20


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(type(item) is kind for item in gc.get_objects())


@pytest.fixture
def groups(harness: CoordinatorHarness) -> list[str]:
    names = [f"g{number}" for number in range(COUNT)]
    for name in names:
        harness.stable(2, group=name)
    harness.turn()
    return names


def test_members_whose_sessions_ended_are_freed_and_then_their_groups(
    harness: CoordinatorHarness, groups: list[str]
) -> None:
    before = alive(Group), alive(Member)
    assert before[1] >= 2 * COUNT
    harness.wait(3600)
    assert alive(Member) <= before[1] - 2 * COUNT
    assert not harness.coordinator.registry.groups.keys() & set(groups)
    assert alive(Group) <= before[0] - COUNT


def test_members_that_left_are_freed(harness: CoordinatorHarness, groups: list[str]) -> None:
    before = alive(Member)
    for name in groups:
        for member_id in list(harness.group(name).members):
            harness.leave(member_id, group=name)
    harness.turn()
    assert alive(Member) <= before - 2 * COUNT


def test_groups_of_a_partition_that_is_led_elsewhere_are_freed(
    harness: CoordinatorHarness, groups: list[str]
) -> None:
    before = alive(Group), alive(Member)
    assert before[0] >= len(groups)
    harness.coordinator.resign()
    harness.turn()
    assert alive(Group) <= before[0] - COUNT
    assert alive(Member) <= before[1] - 2 * COUNT


@pytest.mark.parametrize("end", ["leave", "expire", "resign"])
def test_so_are_those_of_the_new_protocol(make_harness: Make, end: str) -> None:
    """A group without members stays, until it is deleted or its offsets expire."""
    harness = make_harness(consumer_assignment_interval_ms=0)
    beats = Beats(harness)
    members = [f"m{number}" for number in range(COUNT)]
    for member in members:
        beats.join(member)
    before = alive(ConsumerMember)
    assert before >= len(members)
    ends: dict[str, Callable[[], object]] = {
        "leave": lambda: [beats.beat(member, -1) for member in members],
        "expire": lambda: harness.wait(3600),
        "resign": harness.coordinator.resign,
    }
    groups = alive(ConsumerGroup)
    ends[end]()
    harness.turn()
    assert alive(ConsumerMember) <= before - COUNT
    if end == "resign":
        assert alive(ConsumerGroup) < groups
