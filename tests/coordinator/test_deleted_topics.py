"""Topics are deleted where there are very many groups.

Source: docs/spec/coordinator.md §4, check C4.7.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pytest

from barnabas.coordinator import deleted_topics
from barnabas.coordinator.deleted_topics import DeletedTopics
from barnabas.coordinator.group import Group
from barnabas.protocol.offsets_topic import offset_key
from tests.coordinator.coordinator_harness import (
    NONE,
    CoordinatorHarness,
    codes_of,
    partition_of,
)

COUNT = 200
"""Groups with an offset of two topics each."""
GROUPS = [f"g{number}" for number in range(COUNT)]
LAST = GROUPS[-1]


@pytest.fixture
def many(harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch) -> CoordinatorHarness:
    """A pass over all groups takes several turns."""
    monkeypatch.setattr(deleted_topics, "LOOKS_PER_TURN", 2_000)
    for group in GROUPS:
        for topic in ("clicks", "orders"):
            assert codes_of(harness.commit(1, group=group, topic=topic)) == [NONE]
    return harness


def having(harness: CoordinatorHarness, topic: str) -> int:
    """How many groups have an offset of this topic."""
    groups = harness.coordinator.registry.groups.values()
    return sum((topic, 0) in group.offsets.committed for group in groups)


def removed_from_the_log(harness: CoordinatorHarness, group: str, topic: str) -> bool:
    key = offset_key(group, topic, 0)
    values = [r.value for r in harness.log.records(partition_of(group)) if r.key == key]
    return values[-1] is None


def test_offsets_of_a_deleted_topic_go_in_several_turns_when_there_are_very_many_groups(
    many: CoordinatorHarness,
) -> None:
    many.coordinator.topics_deleted(["orders"])
    assert 0 < having(many, "orders") < COUNT
    many.turn()
    assert having(many, "orders") == 0
    assert having(many, "clicks") == COUNT
    assert removed_from_the_log(many, LAST, "orders")


def test_topics_that_are_deleted_meanwhile_share_one_pass_over_all_groups(
    many: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[AbstractSet[str]] = []
    remove = DeletedTopics._remove

    def counted(self: DeletedTopics, group: Group, topics: AbstractSet[str]) -> int:
        seen.append(topics)
        return remove(self, group, topics)

    monkeypatch.setattr(DeletedTopics, "_remove", counted)
    for topic in ("other", "clicks", "orders", "another"):
        many.coordinator.topics_deleted([topic])
    many.turn(30)
    assert seen == [{"other"}] * COUNT + [{"clicks", "orders", "another"}] * COUNT
    assert not many.coordinator.registry.groups


def test_no_offset_of_a_deleted_topic_is_there_any_more_when_it_is_back(
    many: CoordinatorHarness,
) -> None:
    many.coordinator.topics_deleted(["orders"])
    many.coordinator.topics_known({"clicks"})
    assert having(many, "orders") > 0
    many.coordinator.topics_known({"clicks", "orders"})
    assert having(many, "orders") == 0
    assert codes_of(many.commit(7, group=LAST)) == [NONE]
    many.turn(30)
    assert many.committed(group=LAST) == 7


def test_a_partition_that_is_led_anew_meanwhile_is_cleaned_when_it_is_loaded(
    many: CoordinatorHarness,
) -> None:
    many.coordinator.topics_deleted(["orders"])
    assert having(many, "orders") > 0
    many.reload()
    many.turn(30)
    assert having(many, "clicks") == COUNT
    assert having(many, "orders") == 0


def test_a_node_that_stops_has_removed_the_offsets_of_deleted_topics(
    many: CoordinatorHarness,
) -> None:
    many.coordinator.topics_deleted(["orders"])
    assert not removed_from_the_log(many, LAST, "orders")
    many.coordinator.stop()
    assert removed_from_the_log(many, LAST, "orders")
