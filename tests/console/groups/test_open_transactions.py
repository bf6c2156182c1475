"""Commands that change groups, and offsets that open transactions hold (docs/groups.md)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, cast

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, GroupDescription
from barnabas.client.cluster import Node, TopicPartition
from barnabas.console.groups import apply_plan, delete, export_import_clone
from barnabas.console.groups.apply_plan import ChangeResult
from barnabas.console.groups.plan import ChangePlan, changes_to, held_by_transactions
from barnabas.protocol.errors import ErrorCode

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
REFUSAL = (
    "Consumer group 'g' has offsets in an open transaction: orders-1. Wait for its end, or stop "
    "its producer (`barnabas transactions list`)."
)


class Groups:
    """Stands in for an administrator: groups at rest, and what transactions hold of them."""

    def __init__(self, *unstable: tuple[str, TopicPartition]) -> None:
        self.unstable = set(unstable)
        self.offsets: dict[str, dict[TopicPartition, Committed]] = {
            "g": {FIRST: Committed(offset=1), SECOND: Committed(offset=2)}
        }
        self.written: list[str] = []

    async def unstable_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        asked = self.offsets.get(group, {}) if partitions is None else partitions
        return sorted(place for place in asked if (group, place) in self.unstable)

    async def describe_group(self, group: str) -> GroupDescription:
        state = "Empty" if group in self.offsets else "Dead"
        return GroupDescription(
            group=group,
            state=state,
            protocol_type="",
            assignor="",
            coordinator=Node(1, "h", 1),
            members=[],
        )

    async def committed_offsets(self, group: str) -> dict[TopicPartition, Committed]:
        return dict(self.offsets.get(group, {}))

    async def alter_offsets(
        self, group: str, offsets: dict[TopicPartition, Committed]
    ) -> dict[TopicPartition, ErrorCode]:
        self.written.append(group)
        self.offsets.setdefault(group, {}).update(offsets)
        return dict.fromkeys(offsets, ErrorCode.NONE)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, ErrorCode.NONE)


def of(groups: Groups) -> Admin:
    return cast(Admin, groups)


def plan_for(groups: Groups, *names: str) -> ChangePlan:
    wanted = {FIRST: Committed(offset=7), SECOND: Committed(offset=2)}
    changes = [
        change
        for name in names
        for change in changes_to(name, groups.offsets.get(name, {}), wanted)
    ]
    return ChangePlan(changes=changes)


async def test_a_group_with_an_offset_in_a_transaction_is_left_out_of_the_plan() -> None:
    """Also where the offset is as planned already: it would not stay so."""
    groups = Groups(("g", SECOND))
    plan = plan_for(groups, "g", "h")
    whole = plan.without(await apply_plan._held_by_transactions(of(groups), plan))
    assert whole.refusals == {"g": REFUSAL}
    assert {change.group for change in whole.changes} == {"h"}


async def test_a_group_that_is_to_be_deleted_is_looked_at_whole() -> None:
    groups = Groups(("g", SECOND))
    plan = ChangePlan(deleted=["g", "h"])
    whole = plan.without(await apply_plan._held_by_transactions(of(groups), plan))
    assert (whole.deleted, list(whole.refusals)) == (["h"], ["g"])


async def test_nothing_staged_refuses_nothing() -> None:
    groups = Groups()
    plan = plan_for(groups, "g")
    assert await apply_plan._held_by_transactions(of(groups), plan) == {}


async def test_a_clone_is_refused_while_a_transaction_holds_an_offset_of_the_source() -> None:
    chosen = argparse.Namespace(source="g", target="h", topics=[], allow_new_topics=False)
    groups = Groups(("g", SECOND))
    plan = await export_import_clone.planned_clone(of(groups), chosen)
    assert plan.refusals == {"g": REFUSAL}
    assert plan.changes == []
    chosen.topics = [("orders", [0])]
    plan = await export_import_clone.planned_clone(of(groups), chosen)
    assert [change.topic_partition for change in plan.changes] == [FIRST]


async def test_forgetting_is_refused_of_what_only_a_transaction_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def partitions_of(_admin: Admin, _topics: Any) -> list[TopicPartition]:
        return [FIRST, SECOND]

    monkeypatch.setattr(delete, "partitions_of", partitions_of)
    groups = Groups(("g", SECOND))
    del groups.offsets["g"][SECOND]
    chosen = argparse.Namespace(group="g", topics=[("orders", None)])
    plan = await delete.planned_forget(of(groups), chosen)
    assert plan.refusals == {"g": REFUSAL}


async def test_a_transaction_that_came_in_between_is_told() -> None:
    """At Kafka's coordinator, which takes the commit all the same."""
    groups = Groups()
    plan = plan_for(groups, "g")
    outcome = ChangeResult(plan, "c")
    groups.unstable = {("g", FIRST)}
    await apply_plan._alter(of(groups), "g", plan.needed, outcome)
    assert groups.written == ["g"]
    assert "open transaction" in outcome.errors["g", FIRST]
    assert outcome.is_unclear


async def test_a_refusal_of_our_coordinator_is_told_in_words_and_is_clear() -> None:
    class Held(Groups):
        async def alter_offsets(
            self, group: str, offsets: dict[TopicPartition, Committed]
        ) -> dict[TopicPartition, ErrorCode]:
            return dict.fromkeys(offsets, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    groups = Held()
    plan = plan_for(groups, "g")
    outcome = ChangeResult(plan, "c")
    await apply_plan._alter(of(groups), "g", plan.needed, outcome)
    assert "open transaction" in outcome.errors["g", FIRST]
    assert not outcome.is_unclear


def test_of_many_partitions_three_are_named() -> None:
    places = [TopicPartition("t", index) for index in range(5)]
    assert "t-0, t-1, t-2 and 2 more" in (held_by_transactions("g", places) or "")
    assert held_by_transactions("g", []) is None
