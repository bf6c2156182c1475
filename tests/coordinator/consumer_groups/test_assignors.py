"""The assignors of consumer groups. Source: docs/spec/consumer-groups.md §3, C29, C30."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heapify
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.consumer_groups import uniform_assignor
from barnabas.coordinator.consumer_groups.assignor import (
    GroupSubscription,
    MemberSubscription,
    PartitionAssignor,
    SubscribedTopic,
    Target,
)
from barnabas.coordinator.consumer_groups.range_assignor import RangeAssignor
from barnabas.coordinator.consumer_groups.uniform_assignor import UniformAssignor

Shown = dict[str, dict[str, list[int]]]
"""Partitions by member and topic name."""


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def finish(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def assigned(
    assignor: PartitionAssignor,
    counts: Mapping[str, int],
    subscriptions: Mapping[str, str],
    before: Shown | None = None,
    instances: Mapping[str, str] | None = None,
) -> Shown:
    """What the assignor says; names of topics have one letter, subscriptions are such letters."""
    members = [
        MemberSubscription(
            name,
            (instances or {}).get(name),
            frozenset(topic_id(topic) for topic in topics if topic in counts),
            {topic_id(topic): tuple(had) for topic, had in (before or {}).get(name, {}).items()},
        )
        for name, topics in subscriptions.items()
    ]
    subscribed = set("".join(subscriptions.values()))
    topics = [
        SubscribedTopic(topic_id(name), name, count)
        for name, count in counts.items()
        if name in subscribed
    ]
    same = len({frozenset(names) for names in subscriptions.values()}) <= 1
    target: Target = finish(assignor.assign(GroupSubscription(members, topics, same)))
    return {
        member: {
            found.rstrip(b"\0").decode(): list(partitions)
            for found, partitions in sorted(assignment.items())
        }
        for member, assignment in target.items()
    }


def span(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def test_range_gives_members_the_same_partitions_of_every_topic() -> None:
    """C31."""
    found = assigned(RangeAssignor(), {"t": 3, "u": 3}, {"m0": "tu", "m1": "tu"})
    assert found == {"m0": {"t": [0, 1], "u": [0, 1]}, "m1": {"t": [2], "u": [2]}}


def test_range_orders_static_members_by_instance_before_dynamic_ones() -> None:
    """C32."""
    members = {"m9": "t", "m5": "t", "m1": "t"}
    found = assigned(RangeAssignor(), {"t": 7}, members, instances={"m9": "i0", "m5": "i1"})
    assert found == {"m9": {"t": span(0, 2)}, "m5": {"t": [3, 4]}, "m1": {"t": [5, 6]}}


def test_range_deals_each_topic_to_its_own_subscribers() -> None:
    """C33."""
    found = assigned(RangeAssignor(), {"t": 3, "u": 2}, {"a": "tu", "b": "tu", "c": "u"})
    assert found == {"a": {"t": [0, 1], "u": [0]}, "b": {"t": [2], "u": [1]}, "c": {}}


def test_uniform_moves_least_while_members_leave_and_join() -> None:
    """C34."""
    uniform = UniformAssignor()
    counts = {"t": 7}
    first = assigned(uniform, counts, dict.fromkeys("abc", "t"))
    assert first == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}, "c": {"t": span(4, 6)}}
    without = assigned(uniform, counts, dict.fromkeys("ac", "t"), first)
    assert without == {"a": {"t": span(0, 2)}, "c": {"t": span(3, 6)}}
    back = assigned(uniform, counts, dict.fromkeys("abc", "t"), without)
    assert back == {"a": {"t": span(0, 2)}, "b": {"t": [5, 6]}, "c": {"t": [3, 4]}}
    fourth = assigned(uniform, counts, dict.fromkeys("abcd", "t"), back)
    assert fourth == {"a": {"t": [0, 1]}, "b": {"t": [5, 6]}, "c": {"t": [3, 4]}, "d": {"t": [2]}}


def test_uniform_leaves_an_even_assignment_alone() -> None:
    """C35; KAFKA-18688: whoever has one more keeps it."""
    before: Shown = {"a": {"t": span(0, 2)}, "b": {"t": [3, 4]}, "c": {"t": [5, 6]}}
    found = assigned(UniformAssignor(), {"t": 7}, dict.fromkeys("abc", "t"), before)
    assert found == before


def test_uniform_gives_new_partitions_to_who_has_fewest() -> None:
    """C36."""
    before: Shown = {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}, "c": {"t": span(4, 6)}}
    found = assigned(UniformAssignor(), {"t": 9}, dict.fromkeys("abc", "t"), before)
    assert found == {"a": {"t": [0, 1, 7]}, "b": {"t": [2, 3, 8]}, "c": {"t": span(4, 6)}}


def test_uniform_leaves_members_empty_where_partitions_are_few() -> None:
    """C37."""
    found = assigned(UniformAssignor(), {"t": 2}, dict.fromkeys("abcd", "t"))
    assert found == {"a": {}, "b": {}, "c": {"t": [0]}, "d": {"t": [1]}}


def test_uniform_weighs_topics_that_only_some_subscribe_to() -> None:
    """C38."""
    uniform = UniformAssignor()
    members = {"a": "t", "b": "tu", "c": "u"}
    assert assigned(uniform, {"t": 6, "u": 4}, members) == {
        "a": {"t": [0, 2, 4]},
        "b": {"t": [1, 3, 5]},
        "c": {"u": span(0, 3)},
    }
    before: Shown = {"a": {"t": span(0, 5)}, "b": {"u": [0, 1]}, "c": {"u": [2, 3]}}
    assert assigned(uniform, {"t": 6, "u": 4}, members, before) == {
        "a": {"t": span(0, 3)},
        "b": {"t": [4, 5], "u": [0]},
        "c": {"u": span(1, 3)},
    }


def test_uniform_takes_what_a_member_no_longer_subscribes_to() -> None:
    """C39."""
    uniform = UniformAssignor()
    assert assigned(uniform, {"t": 4, "u": 2}, {"a": "t", "b": "tu"}) == {
        "a": {"t": span(0, 2)},
        "b": {"t": [3], "u": [0, 1]},
    }
    before: Shown = {"a": {"t": [0, 1], "u": [0]}, "b": {"t": [2, 3], "u": [1]}}
    assert assigned(uniform, {"t": 4, "u": 2}, {"a": "t", "b": "u"}, before) == {
        "a": {"t": span(0, 3)},
        "b": {"u": [0, 1]},
    }


ASSIGNORS = (RangeAssignor(), UniformAssignor())
GROUPS = st.tuples(
    st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 12), max_size=4),
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.sets(st.sampled_from("tuvwx")).map(lambda found: "".join(sorted(found))),
        max_size=8,
    ),
)


def owners(found: Shown) -> list[tuple[str, int]]:
    return sorted(
        (topic, partition)
        for share in found.values()
        for topic, partitions in share.items()
        for partition in partitions
    )


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda found: found.name)
@settings(max_examples=150, deadline=None)
@given(GROUPS, GROUPS)
def test_each_partition_has_one_owner_that_subscribes_to_it_whatever_was_before(
    assignor: PartitionAssignor,
    earlier: tuple[dict[str, int], dict[str, str]],
    later: tuple[dict[str, int], dict[str, str]],
) -> None:
    before = assigned(assignor, *earlier)
    counts, members = later
    found = assigned(assignor, counts, members, before)
    wanted = set("".join(members.values()))
    assert owners(found) == sorted(
        (topic, partition)
        for topic, count in counts.items()
        if topic in wanted
        for partition in range(count)
    )
    assert all(topic in members[member] for member, share in found.items() for topic in share)
    assert found.keys() == members.keys()


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 30))
def test_uniform_is_even_and_moves_no_more_than_it_must(old: int, new: int, count: int) -> None:
    uniform, counts = UniformAssignor(), {"t": count}
    before = assigned(uniform, counts, dict.fromkeys("abcdefgh"[:old], "t"))
    after = assigned(uniform, counts, dict.fromkeys("abcdefgh"[:new], "t"), before)
    sizes = [len(share.get("t", [])) for share in after.values()]
    assert max(sizes) - min(sizes) <= 1
    stayed = sum(
        len(set(share.get("t", [])) & set(before.get(member, {}).get("t", [])))
        for member, share in after.items()
    )
    ceilings = sorted((len(share.get("t", [])) for share in before.values()), reverse=True)[:new]
    if new >= old:
        quota, extra = divmod(count, new)
        wanted = [quota + (index < extra) for index in range(new)]
        assert stayed == sum(map(min, ceilings, wanted))


@settings(max_examples=100, deadline=None)
@given(GROUPS)
def test_uniform_leaves_its_own_result_alone(group: tuple[dict[str, int], dict[str, str]]) -> None:
    first = assigned(UniformAssignor(), *group)
    assert assigned(UniformAssignor(), *group, first) == first


def test_two_members_that_claim_one_partition_do_not_both_keep_it() -> None:
    """KAFKA-19862: a log read while it is compacted may say so."""
    before: Shown = {"a": {"t": [0, 1]}, "b": {"t": [1]}}
    for members in ({"a": "t", "b": "t"}, {"a": "t", "b": "tu"}):
        found = assigned(UniformAssignor(), {"t": 2, "u": 1}, members, before)
        wanted = [("t", 0), ("t", 1)] + [("u", 0)] * ("u" in members["b"])
        assert owners(found) == wanted


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda found: found.name)
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_a_large_group_is_dealt_with_in_many_turns(
    assignor: PartitionAssignor, is_homogeneous: bool
) -> None:
    topics = [SubscribedTopic(topic_id(f"t{number}"), f"t{number}", 20) for number in range(50)]
    ids = frozenset(topic.topic_id for topic in topics)
    members = [MemberSubscription(f"m{number:04}", None, ids, {}) for number in range(1000)]
    steps = assignor.assign(GroupSubscription(members, topics, is_homogeneous))
    turns = sum(1 for _ in steps)
    assert turns >= 2


def test_topics_that_are_even_are_not_evened_out(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps: list[int] = []

    def counted(heap: list[Any]) -> None:
        heaps.append(len(heap))
        heapify(heap)

    monkeypatch.setattr(uniform_assignor, "heapify", counted)
    counts, subscriptions = {"t": 4, "u": 4, "v": 4}, {"a": "tuv", "b": "tuv", "c": "uv"}
    even = assigned(UniformAssignor(), counts, subscriptions)
    heaps.clear()
    assert assigned(UniformAssignor(), counts, subscriptions, even) == even
    assert not heaps
    uneven = {"a": {"t": span(0, 3), "u": [0, 1]}, "b": {"u": [2, 3]}, "c": {"v": span(0, 3)}}
    after = assigned(UniformAssignor(), counts, subscriptions, uneven)
    assert {name: sum(map(len, share.values())) for name, share in after.items()} == {
        "a": 4,
        "b": 4,
        "c": 4,
    }
    assert len(heaps) == 2  # those of one topic


def test_as_many_members_again_are_given_their_share_in_few_turns() -> None:
    """Each partition that moves costs the logarithm of the members, not all of them."""
    count = 400
    topics = [SubscribedTopic(topic_id(name), name, 4000) for name in "tuv"]
    ids = [topic.topic_id for topic in topics]
    kinds = [frozenset(ids[:2]), frozenset(ids[1:])]
    names = [f"m{number:04}" for number in range(count)]
    first = [MemberSubscription(name, None, kinds[at % 2], {}) for at, name in enumerate(names)]
    target = finish(UniformAssignor().assign(GroupSubscription(first, topics, False)))
    doubled = [one._replace(target=target[one.member_id]) for one in first]
    doubled += [one._replace(member_id=f"n{one.member_id}") for one in first]
    steps = counted(UniformAssignor().assign(GroupSubscription(doubled, topics, False)))
    found, turns = finish(steps)
    loads = [sum(map(len, share.values())) for share in found.values()]
    assert max(loads) - min(loads) <= 1
    assert turns < 150


def counted(steps: Generator[None, None, Any]) -> Generator[None, None, tuple[Any, int]]:
    """The same work; at its end also the number of its turns."""
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, turns
        turns += 1
        yield
