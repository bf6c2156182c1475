"""What the members of a group subscribe to and offer, against a plain look at all of them.

Source: docs/spec/consumer-groups.md §2.1 and §6, C62.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.consumer_groups import group_machine, regex_resolution
from barnabas.coordinator.consumer_groups.assignor import SubscribedTopic
from barnabas.coordinator.consumer_groups.consumer_group import ConsumerGroup
from barnabas.coordinator.consumer_groups.member import (
    ClassicMetadata,
    ConsumerMember,
    MemberProfile,
)
from barnabas.coordinator.consumer_groups.subscription_metadata import metadata_hash
from barnabas.coordinator.group_registry import GroupTerm
from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.coordinator_harness import KnownCatalog, KnownTopics

NAMES = ("s", "t", "u")
REGEXES = ("s|t", "[tu]", "v")
MEMBERS = st.sampled_from(["A", "B", "C"])
PROTOCOLS = ("range", "roundrobin", "sticky")
CLASSIC = st.builds(
    ClassicMetadata,
    session_timeout_ms=st.just(1000),
    protocols=st.lists(st.tuples(st.sampled_from(PROTOCOLS), st.just(b"")), max_size=4).map(tuple),
)
PROFILES = st.builds(
    MemberProfile,
    client_id=st.just("c"),
    client_host=st.just("/h"),
    rebalance_timeout_ms=st.just(1000),
    names=st.frozensets(st.sampled_from(NAMES)),
    regex=st.none() | st.sampled_from(REGEXES),
    classic=st.none() | CLASSIC,
)


def powerset(names: Sequence[str]) -> list[set[str]]:
    return [
        {name for index, name in enumerate(names) if chosen >> index & 1}
        for chosen in range(1 << len(names))
    ]


def new_group() -> ConsumerGroup:
    return ConsumerGroup("g", GroupTerm(0, 0), since_ms=0)


def named(*names: str) -> MemberProfile:
    return MemberProfile("c", "/h", 1000, names=frozenset(names))


class CountedCatalog(KnownCatalog):
    """Counts how often it is asked for a topic."""

    def __init__(self, names: Iterable[str]) -> None:
        topics = KnownTopics()
        topics.counts = dict.fromkeys(names, 1)
        super().__init__(topics)
        self.asked = 0

    def topic(self, name: str) -> SubscribedTopic | None:
        self.asked += 1
        return super().topic(name)


class Subscriptions(RuleBasedStateMachine):
    """Members come, go and say other things; expressions are resolved; topics come and go."""

    @initialize()
    def begin(self) -> None:
        self.group = new_group()
        self.catalog = CountedCatalog(["t", "u"])

    @rule(name=MEMBERS, profile=PROFILES)
    def say(self, name: str, profile: MemberProfile) -> None:
        member = self.group.consumers.get(name)
        if member is None:
            self.group.put(ConsumerMember(name, profile))
        else:
            self.group.describe(member, profile)
            self._forget_regexes()

    @rule(name=MEMBERS)
    def leave(self, name: str) -> None:
        member = self.group.consumers.get(name)
        if member is not None:
            self.group.drop(member)
            self._forget_regexes()

    def _forget_regexes(self) -> None:
        """As the machine does after each of them."""
        for regex in [regex for regex in self.group.resolved if regex not in self.group.regexes]:
            del self.group.resolved[regex]
            self.group.note_subscribed()

    @rule(found=st.dictionaries(st.sampled_from(REGEXES), st.frozensets(st.sampled_from(NAMES))))
    def resolve(self, found: dict[str, frozenset[str]]) -> None:
        regex_resolution.take(self.group, found, self.catalog.version, 0)

    @rule(name=st.sampled_from(NAMES), exists=st.booleans())
    def change_topic(self, name: str, exists: bool) -> None:
        if exists or self.catalog.name_of(name.encode()) is not None:
            self.catalog.change(name, 1 if exists else None)

    @invariant()
    def subscribed_is_what_all_members_subscribe_to(self) -> None:
        expected = set[str]()
        for member in self.group.consumers.values():
            expected |= self._topics_of(member.profile)
        assert self.group.topic_names == expected

    @invariant()
    def each_member_has_the_topics_that_exist_of_those_it_subscribes_to(self) -> None:
        for member in self.group.consumers.values():
            topics = map(self.catalog.topic, self._topics_of(member.profile))
            expected = {topic.topic_id for topic in topics if topic is not None}
            assert self.group.topic_ids(member.profile, self.catalog) == expected

    @invariant()
    def who_fits_in_shares_a_protocol_with_all_other_classic_members(self) -> None:
        members = self.group.consumers.values()
        assert self.group.classic_count == sum(member.is_classic for member in members)
        for joiner in ("A", "B", "nobody"):
            offered = [
                {name for name, _ in member.profile.classic.protocols}
                for member in members
                if member.profile.classic is not None and member.member_id != joiner
            ]
            for names in powerset(PROTOCOLS):
                shared = names.intersection(*offered)
                assert self.group.fits_classic(names, joiner) == bool(shared)

    def _topics_of(self, profile: MemberProfile) -> frozenset[str]:
        found = self.group.resolved.get(profile.regex or "")
        return profile.names if found is None else profile.names | found.topics


TestSubscriptions = Subscriptions.TestCase
TestSubscriptions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_topics_are_looked_up_once_for_all_members_with_the_same_subscription() -> None:
    group, catalog = new_group(), CountedCatalog(["s", "t", "u"])
    for number in range(50):
        member = ConsumerMember(f"m{number}", named("s", "t", "u"))
        group.put(member)
        group.topic_ids(member.profile, catalog)
    assert catalog.asked == 3


def test_topics_of_former_subscriptions_are_not_kept_for_ever() -> None:
    group, catalog = new_group(), CountedCatalog(["t"])
    member = ConsumerMember("A", named())
    group.put(member)
    for number in range(50):
        group.describe(member, named("t", f"other {number}"))
        assert group.topic_ids(member.profile, catalog) == {b"t".ljust(16, b"\0")}
        assert len(group._ids) <= 3
    group.drop(member)
    assert not group._ids


def test_members_that_bring_no_other_topic_change_nothing_of_what_is_subscribed() -> None:
    group = new_group()
    group.put(ConsumerMember("A", MemberProfile("c", "/h", 1000, regex="[tu]")))
    group.put(ConsumerMember("B", named("s")))
    regex_resolution.take(group, {"[tu]": frozenset("tu")}, 1, 0)
    before = group.topic_names
    assert before == {"s", "t", "u"}
    group.put(ConsumerMember("C", MemberProfile("c", "/h", 1000, regex="[tu]")))
    group.put(ConsumerMember("D", named("s")))
    group.drop(group.consumers["B"])
    assert group.topic_names is before
    group.drop(group.consumers["D"])
    assert group.topic_names == {"t", "u"}


class _NeverWalked(dict[str, ConsumerMember]):
    """Members that nobody goes through."""

    def _refuse(self) -> NoReturn:
        raise AssertionError("went through all members")

    __iter__ = keys = values = items = _refuse


def test_whether_a_classic_member_fits_in_is_known_without_a_look_at_the_others() -> None:
    group = new_group()
    group.consumers = _NeverWalked()
    for number, name in enumerate(("range", "sticky", "sticky")):
        classic = ClassicMetadata(1000, (("roundrobin", b""), (name, b"")))
        profile = MemberProfile("c", "/h", 1000, classic=classic)
        group.put(ConsumerMember(f"m{number}", profile))
    assert group.fits_classic({"roundrobin"}, "new")
    assert not group.fits_classic({"range", "sticky"}, "new")
    assert group.fits_classic({"sticky"}, "m0")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many topics each hash of a group's topics was made of."""
    counts: list[int] = []

    def counted(topics: Iterable[SubscribedTopic]) -> int:
        found = list(topics)
        counts.append(len(found))
        return metadata_hash(found)

    monkeypatch.setattr(group_machine, "metadata_hash", counted)
    return counts


def test_topics_are_hashed_when_they_change_and_not_for_each_member_that_joins(
    beats: Beats, hashed: list[int]
) -> None:
    """C62."""
    for number in range(20):
        beats.join(f"m{number}", ["t", "u"])
    assert hashed == [2]
    beats.join("other", ["t", "v"])
    assert hashed == [2, 2]
    beats.harness.catalog.change("v", 1)
    beats.join("late", ["t", "u"])
    assert hashed == [2, 2, 3]
    epoch = beats.group.epoch
    beats.join("later", ["v"])
    assert hashed == [2, 2, 3]
    assert beats.group.epoch == epoch + 1
