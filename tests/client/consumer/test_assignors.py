"""Whoever leads a group deals out every partition once, fairly, and moves as little as it can."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, cycle
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.consumer.assignors import (
    ASSIGNORS,
    Assigned,
    Candidate,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    candidate,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import CorruptRequest

TOPICS = ("a", "b", "c")
STICKY = CooperativeStickyAssignor()
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), min_size=1)
all_subscribed = st.integers(1, 7).map(
    lambda count: [Candidate(f"m{number}", None, frozenset(TOPICS)) for number in range(count)]
)
some_subscribed = st.lists(
    st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=7
).map(
    lambda member: [Candidate(f"m{number}", None, topics) for number, topics in enumerate(member)]
)


def topic_partitions(**counts: Sequence[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in counts for number in counts[topic]]


def all_of(assigned: Assigned) -> list[TopicPartition]:
    return sorted(chain.from_iterable(assigned.values()))


def wanted(members: Sequence[Candidate], counts: Mapping[str, int]) -> list[TopicPartition]:
    topics = frozenset[str]().union(*(member.topics for member in members))
    return topic_partitions(
        **{name: range(count) for name, count in counts.items() if name in topics}
    )


def after(members: Sequence[Candidate], assigned: Assigned, generation: int) -> list[Candidate]:
    """The members as they come to the next rebalance."""
    return [
        member._replace(owned=tuple(assigned[member.member_id]), generation=generation)
        for member in members
        if member.member_id in assigned
    ]


def settled(
    members: Sequence[Candidate], counts: Mapping[str, int]
) -> tuple[list[Candidate], Assigned]:
    """As many generations as it takes until nobody gives up anything more."""
    members = list(members)
    for generation in range(1, 4):
        assigned = STICKY.assign(members, counts)
        is_done = all_of(assigned) == sorted(wanted(members, counts))
        members = after(members, assigned, generation)
        if is_done:
            return members, assigned
    raise AssertionError("moves do not end")


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(members=some_subscribed, counts=counts_of_topics)
def test_every_partition_has_exactly_one_owner_that_subscribed(
    name: str, members: list[Candidate], counts: dict[str, int]
) -> None:
    assigned = ASSIGNORS[name].assign(members, counts)
    assert all_of(assigned) == sorted(wanted(members, counts))
    for member in members:
        assert {
            topic_partition.topic for topic_partition in assigned[member.member_id]
        } <= member.topics


@given(members=some_subscribed, counts=counts_of_topics)
def test_sticky_members_own_everything_once_when_moves_have_ended(
    members: list[Candidate], counts: dict[str, int]
) -> None:
    settled_members, assigned = settled(members, counts)
    for member in settled_members:
        assert {
            topic_partition.topic for topic_partition in assigned[member.member_id]
        } <= member.topics


@given(members=all_subscribed, counts=counts_of_topics)
def test_with_equal_subscriptions_nobody_has_two_more_than_another(
    members: list[Candidate], counts: dict[str, int]
) -> None:
    _, assigned = settled(members, counts)
    sizes = [len(share) for share in assigned.values()]
    assert max(sizes) - min(sizes) <= 1


@given(members=some_subscribed, counts=counts_of_topics)
def test_no_single_move_would_make_shares_more_alike(
    members: list[Candidate], counts: dict[str, int]
) -> None:
    _, assigned = settled(members, counts)
    for source in members:
        for topic_partition in assigned[source.member_id]:
            for target in members:
                if topic_partition.topic in target.topics:
                    gap = len(assigned[source.member_id]) - len(assigned[target.member_id])
                    assert gap <= 1


@given(members=some_subscribed, counts=counts_of_topics)
def test_nothing_moves_while_nothing_changes(
    members: list[Candidate], counts: dict[str, int]
) -> None:
    settled_members, assigned = settled(members, counts)
    assert STICKY.assign(settled_members, counts) == assigned


@given(members=all_subscribed.filter(lambda member: len(member) > 1), counts=counts_of_topics)
def test_when_a_member_leaves_the_others_keep_what_they_have(
    members: list[Candidate], counts: dict[str, int]
) -> None:
    settled_members, assigned = settled(members, counts)
    left = settled_members[1:]
    now = STICKY.assign(left, counts)
    for member in left:
        assert set(assigned[member.member_id]) <= set(now[member.member_id])


@given(members=all_subscribed, counts=counts_of_topics)
def test_when_a_member_joins_only_its_share_moves(
    members: list[Candidate], counts: dict[str, int]
) -> None:
    settled_members, assigned = settled(members, counts)
    joined = [*settled_members, Candidate("new", None, frozenset(TOPICS))]
    _, now = settled(joined, counts)
    moved = sum(
        len(set(assigned[member.member_id]) - set(now[member.member_id]))
        for member in settled_members
    )
    assert moved == len(now["new"])


@given(members=some_subscribed, counts=counts_of_topics, others=some_subscribed)
def test_a_partition_is_given_out_only_after_its_owner_gave_it_up(
    members: list[Candidate], counts: dict[str, int], others: list[Candidate]
) -> None:
    settled_members, assigned = settled(members, counts)
    changed = {member.member_id: member.topics for member in others}
    now = [
        member._replace(topics=changed.get(member.member_id, member.topics))
        for member in settled_members
    ]
    owners = {
        topic_partition: member.member_id
        for member in now
        for topic_partition in assigned[member.member_id]
        if topic_partition.topic in member.topics
    }
    for member_id, share in STICKY.assign(now, counts).items():
        assert all(owners.get(topic_partition, member_id) == member_id for topic_partition in share)


# What the rules say, read off them without regard for the time it takes.


def in_order(members: Sequence[Candidate]) -> list[Candidate]:
    """Static members first."""
    return sorted(
        members, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id)
    )


def plain_ranges(members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
    found: Assigned = {member.member_id: [] for member in members}
    for topic, count in sorted(counts.items()):
        readers = [member for member in in_order(members) if topic in member.topics]
        left = topic_partitions(**{topic: range(count)})
        for index, member in enumerate(readers):
            share = count // len(readers) + (index < count % len(readers))
            found[member.member_id] += left[:share]
            left = left[share:]
    return found


def plain_turns(members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
    found: Assigned = {member.member_id: [] for member in members}
    turns = cycle(in_order(members))
    for topic_partition in sorted(wanted(members, counts)):
        member = next(one for one in turns if topic_partition.topic in one.topics)
        found[member.member_id].append(topic_partition)
    return found


def plain_balance(
    members: Sequence[Candidate], counts: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> Assigned:
    """Partitions nobody owns to the smallest shares, then one move after the other."""
    shares: dict[str, list[TopicPartition]] = {one.member_id: [] for one in in_order(members)}
    readers = {
        topic: [one.member_id for one in in_order(members) if topic in one.topics]
        for topic in counts
    }
    unowned = []
    for topic_partition in sorted(wanted(members, counts)):
        if topic_partition in owners:
            shares[owners[topic_partition]].append(topic_partition)
        else:
            unowned.append(topic_partition)

    def least(topic: str) -> str:
        return min(readers[topic], key=lambda member_id: len(shares[member_id]))

    for topic_partition in sorted(unowned, key=lambda one: len(readers[one.topic])):
        shares[least(topic_partition.topic)].append(topic_partition)
    while move := plain_move(shares, {topic: least(topic) for topic in counts if readers[topic]}):
        topic_partition, source, target = move
        shares[source].remove(topic_partition)
        shares[target].append(topic_partition)
    return {member_id: sorted(share) for member_id, share in shares.items()}


def plain_move(
    shares: Mapping[str, Sequence[TopicPartition]], least: Mapping[str, str]
) -> tuple[TopicPartition, str, str] | None:
    for source in sorted(shares, key=lambda member_id: -len(shares[member_id])):
        for topic, last in {one.topic: one for one in shares[source]}.items():
            if len(shares[source]) - len(shares[least[topic]]) > 1:
                return last, source, least[topic]
    return None


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Candidate], dict[str, int], dict[TopicPartition, str]]:
    """Members that read any topics, some of them static, and any owners of what they read."""
    topics = "abcde"[: draw(st.integers(1, 5))]
    subscriptions = st.frozensets(st.sampled_from(topics))
    if draw(st.booleans()):
        kinds = draw(st.lists(subscriptions, min_size=1, max_size=3))
        subscriptions = st.sampled_from(kinds)
    numbers = draw(st.permutations(range(draw(st.integers(0, 9)))))
    members = [
        Candidate(f"m{number}", f"s{9 - number}" if number % 3 == 1 else None, draw(subscriptions))
        for number in numbers
    ]
    counts = {topic: draw(st.integers(0, 15)) for topic in topics if draw(st.integers(0, 9))}
    chance = draw(st.sampled_from([0, 1, 3, 4]))
    # A few own the most: then much has to move.
    owning = draw(st.integers(1, 9))
    owners = {}
    for topic_partition in wanted(members, counts):
        readers = [one.member_id for one in members if topic_partition.topic in one.topics]
        if draw(st.integers(1, 4)) <= chance:
            owners[topic_partition] = draw(st.sampled_from(readers[:owning]))
    return members, counts, owners


@settings(max_examples=400)
@given(groups())
def test_every_assignor_does_what_its_rules_say(
    group: tuple[list[Candidate], dict[str, int], dict[TopicPartition, str]],
) -> None:
    members, counts, owners = group
    assert RangeAssignor().assign(members, counts) == plain_ranges(members, counts)
    assert RoundRobinAssignor().assign(members, counts) == plain_turns(members, counts)
    balanced = STICKY.balance(members, counts, owners)
    assert balanced == plain_balance(members, counts, owners)
    assert list(balanced) == [one.member_id for one in in_order(members)]


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, those in C included: steps, on any machine the same."""
    calls = 0

    def note(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("owning", [0, 1, 9], ids=["none", "one", "some"])
@pytest.mark.parametrize("kinds", [("ab",), ("a", "ab", "bc", "abcd")], ids=["equal", "mixed"])
def test_a_partition_costs_no_look_at_all_members(kinds: Sequence[str], owning: int) -> None:
    members = [
        Candidate(f"m{number:03}", None, frozenset(kinds[number % len(kinds)]))
        for number in range(200)
    ]
    counts = dict.fromkeys("abcd", 500)
    owners = {}
    if owning:
        for topic_partition in wanted(members, counts):
            readers = [one.member_id for one in members if topic_partition.topic in one.topics]
            owners[topic_partition] = readers[topic_partition.partition % owning]
    calls = calls_of(lambda: STICKY.balance(members, counts, owners))
    assert calls < 50 * 2_000
    assert calls_of(lambda: RoundRobinAssignor().assign(members, counts)) < 20 * 2_000


def test_of_two_claims_the_newer_generation_counts() -> None:
    mine = (TopicPartition("a", 0),)
    topics = frozenset({"a"})
    members = [Candidate("old", None, topics, mine, 3), Candidate("new", None, topics, mine, 4)]
    assert STICKY.assign(members, {"a": 1}) == {"old": [], "new": list(mine)}


def test_two_claims_of_one_generation_are_none() -> None:
    mine = (TopicPartition("a", 0), TopicPartition("a", 1))
    members = [Candidate(name, None, frozenset({"a"}), mine, 3) for name in ("x", "y")]
    assigned = STICKY.assign(members, {"a": 2})
    assert Counter(len(share) for share in assigned.values()) == {1: 2}


def test_ranges_are_neighbours_and_the_first_members_get_one_more() -> None:
    members = [Candidate(name, None, frozenset({"a", "b"})) for name in ("x", "y")]
    assert RangeAssignor().assign(members, {"a": 3, "b": 3}) == {
        "x": topic_partitions(a=[0, 1], b=[0, 1]),
        "y": topic_partitions(a=[2], b=[2]),
    }


def test_turns_go_around_and_leave_out_who_did_not_subscribe() -> None:
    members = [
        Candidate("x", None, frozenset({"a"})),
        Candidate("y", None, frozenset({"a", "b"})),
    ]
    assert RoundRobinAssignor().assign(members, {"a": 3, "b": 1}) == {
        "x": topic_partitions(a=[0, 2]),
        "y": topic_partitions(a=[1], b=[0]),
    }


def test_static_members_are_ordered_by_the_name_that_outlives_them() -> None:
    members = [Candidate("a-1", "z", frozenset({"a"})), Candidate("b-9", "y", frozenset({"a"}))]
    assert RangeAssignor().assign(members, {"a": 1}) == {"a-1": [], "b-9": topic_partitions(a=[0])}


def test_a_large_group_is_dealt_out_in_moments() -> None:
    members = [Candidate(f"m{number:03}", None, frozenset({"a"})) for number in range(100)]
    _, assigned = settled(members, {"a": 1_000})
    assert {len(share) for share in assigned.values()} == {10}


@given(
    st.frozensets(st.text(min_size=1, max_size=9), max_size=5),
    st.frozensets(st.tuples(st.text(min_size=1, max_size=9), st.integers(0, 1 << 20)), max_size=9),
    st.integers(-1, 1 << 30),
)
def test_a_subscription_is_read_as_it_was_written(
    topics: frozenset[str], owned: frozenset[tuple[str, int]], generation: int
) -> None:
    mine = [TopicPartition(*member) for member in owned]
    read = candidate("m", None, encode_subscription(topics, mine, generation))
    assert read.topics == topics
    assert set(read.owned) == set(mine)
    assert read.generation == generation


def test_an_assignment_is_read_as_it_was_written() -> None:
    given_topic_partitions = topic_partitions(a=[0, 2], b=[1])
    assert decode_assignment(encode_assignment(given_topic_partitions)) == set(
        given_topic_partitions
    )
    assert decode_assignment(b"") == set()


def test_bytes_that_are_no_assignment_are_refused() -> None:
    with pytest.raises(CorruptRequest):
        decode_assignment(b"\x00\x00\xff")
