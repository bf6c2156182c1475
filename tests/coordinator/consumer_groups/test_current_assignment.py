"""How partitions go from member to member. Source: docs/spec/consumer-groups.md §2.4 and §7."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from barnabas.coordinator.consumer_groups.assignor import (
    Assignment,
    GroupSubscription,
    MemberSubscription,
    SubscribedTopic,
)
from barnabas.coordinator.consumer_groups.current_assignment import (
    CurrentAssignment,
    MemberState,
    Reconciliation,
    TopicIdPartition,
    reconcile,
)
from barnabas.coordinator.consumer_groups.uniform_assignor import UniformAssignor

TOPIC = b"t".ljust(16, b"\0")
OTHER = b"u".ljust(16, b"\0")

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


def tps(*partitions: int, topic: bytes = TOPIC) -> frozenset[TopicIdPartition]:
    return frozenset((topic, partition) for partition in partitions)


class Group:
    """A group whose target is computed at once (an assignment interval of 0)."""

    def __init__(self, partitions: int) -> None:
        self.counts = {TOPIC: partitions, OTHER: 2}
        self.epoch = 1
        self.members: dict[str, CurrentAssignment] = {}
        self.subscribed: dict[str, frozenset[bytes]] = {}
        self.target: dict[str, Assignment] = {}

    def join(self, name: str, *topics: bytes) -> CurrentAssignment:
        self.members.setdefault(name, CurrentAssignment())
        self.subscribed[name] = frozenset(topics or (TOPIC,))
        self.bump()
        return self.beat(name, frozenset())

    def bump(self) -> None:
        self.epoch += 1
        wanted = frozenset().union(*self.subscribed.values())
        members = [
            MemberSubscription(name, None, topics, self.target.get(name, {}))
            for name, topics in self.subscribed.items()
        ]
        topics = [SubscribedTopic(found, found.hex(), self.counts[found]) for found in wanted]
        same = len(set(self.subscribed.values())) == 1
        steps = UniformAssignor().assign(GroupSubscription(members, topics, same))
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self.target = stop.value
                return

    def beat(
        self, name: str, owned: Iterable[TopicIdPartition] | None = None, changed: bool = False
    ) -> CurrentAssignment:
        """One heartbeat of a member; its next state."""

        def is_held_by_another(wanted: TopicIdPartition) -> bool:
            return any(
                wanted in current.assigned or wanted in current.revoking
                for other, current in self.members.items()
                if other != name
            )

        step = Reconciliation(
            self.epoch,
            self.target[name],
            self.subscribed[name],
            changed,
            None if owned is None else frozenset(owned),
            is_held_by_another,
        )
        self.members[name] = reconcile(self.members[name], step)
        self.check()
        return self.members[name]

    def check(self) -> None:
        """C12: a partition is held by one member at most."""
        held = [
            found
            for current in self.members.values()
            for found in (*current.assigned, *current.revoking)
        ]
        assert len(held) == len(set(held))


def shown(current: CurrentAssignment) -> tuple[MemberState, int, set[int]]:
    return current.state, current.member_epoch, {partition for _, partition in current.assigned}


@pytest.fixture
def pair() -> Group:
    """C66: the first member had everything, the second one waits for its half."""
    group = Group(6)
    assert shown(group.join("A")) == (STABLE, 2, {0, 1, 2, 3, 4, 5})
    assert shown(group.join("B")) == (UNRELEASED, 3, set())
    return group


def settle(group: Group) -> Group:
    assert shown(group.beat("A")) == (UNREVOKED, 2, {0, 1, 2})
    assert shown(group.beat("B")) == (UNRELEASED, 3, set())
    assert shown(group.beat("A", tps(0, 1, 2))) == (STABLE, 3, {0, 1, 2})
    assert shown(group.beat("B")) == (STABLE, 3, {3, 4, 5})
    return group


def test_a_second_member_gets_what_the_first_has_given_up(pair: Group) -> None:
    """C66."""
    settle(pair)
    assert shown(pair.beat("B", tps(3, 4, 5))) == (STABLE, 3, {3, 4, 5})


def test_a_third_member_gets_what_both_have_given_up(pair: Group) -> None:
    """C67."""
    group = settle(pair)
    assert shown(group.join("C")) == (UNRELEASED, 4, set())
    assert shown(group.beat("A")) == (UNREVOKED, 3, {0, 1})
    assert shown(group.beat("A", tps(0, 1))) == (STABLE, 4, {0, 1})
    assert shown(group.beat("B")) == (UNREVOKED, 3, {3, 4})
    assert shown(group.beat("C")) == (UNRELEASED, 4, {2})
    assert shown(group.beat("B", tps(3, 4))) == (STABLE, 4, {3, 4})
    assert shown(group.beat("C")) == (STABLE, 4, {2, 5})


def test_heartbeats_that_say_nothing_of_partitions_free_none(pair: Group) -> None:
    """C17, C95: null is not empty."""
    pair.beat("A")
    for _ in range(3):
        assert shown(pair.beat("A")) == (UNREVOKED, 2, {0, 1, 2})
        assert shown(pair.beat("A", tps(0, 1, 2, 3))) == (UNREVOKED, 2, {0, 1, 2})
        assert shown(pair.beat("B")) == (UNRELEASED, 3, set())
    assert shown(pair.beat("A", ())) == (STABLE, 3, {0, 1, 2})


def test_the_same_full_heartbeat_twice_changes_nothing(pair: Group) -> None:
    """C71, C89: the answer may have been lost."""
    pair.beat("A")
    once = pair.beat("A", tps(0, 1, 2))
    assert pair.beat("A", tps(0, 1, 2)) is once
    assert once.previous_member_epoch == 2


def test_kept_partitions_keep_the_epoch_of_their_assignment(pair: Group) -> None:
    """C18: with it late commits are told from those of partitions that went and came back."""
    group = settle(pair)
    assert set(group.members["A"].assigned.values()) == {2}
    assert set(group.members["B"].assigned.values()) == {3}


def test_a_member_between_two_epochs_is_not_told_the_one_it_skipped(pair: Group) -> None:
    """C72: three join before the first beats again."""
    assert shown(pair.join("C")) == (UNRELEASED, 4, set())
    assert shown(pair.beat("A", tps(0, 1, 2, 3, 4, 5))) == (UNREVOKED, 2, {0, 1})
    assert shown(pair.beat("A", tps(0, 1))) == (STABLE, 4, {0, 1})
    found = shown(pair.beat("B"))
    assert found[:2] == (STABLE, 4)
    assert shown(pair.beat("C"))[:2] == (STABLE, 4)


def test_partitions_of_a_topic_that_is_unsubscribed_are_given_up(pair: Group) -> None:
    """C79."""
    group = settle(pair)
    group.subscribed["A"] = frozenset()
    group.bump()
    assert shown(group.beat("A", changed=True)) == (UNREVOKED, 3, set())
    assert shown(group.beat("B")) == (UNRELEASED, 4, {3, 4, 5})
    assert shown(group.beat("A", ())) == (STABLE, 4, set())
    assert shown(group.beat("B")) == (STABLE, 4, {0, 1, 2, 3, 4, 5})


def test_partitions_are_given_up_before_there_is_a_target_that_says_so(pair: Group) -> None:
    """C79: the assignment interval is not over."""
    group = settle(pair)
    group.subscribed["A"] = frozenset()
    trimmed = group.beat("A", changed=True)
    assert shown(trimmed) == (UNREVOKED, 3, set())
    assert trimmed.revoking.keys() == tps(0, 1, 2)
    assert shown(group.beat("A", ())) == (STABLE, 3, set())


def test_a_member_that_has_given_up_already_need_not_be_asked(pair: Group) -> None:
    group = settle(pair)
    group.subscribed["A"] = frozenset()
    assert shown(group.beat("A", (), changed=True)) == (STABLE, 3, set())


def test_a_member_may_be_told_to_give_up_more_while_it_gives_up(pair: Group) -> None:
    """C17: from one such state to another its epoch stays (KAFKA-19974)."""
    pair.beat("A")
    pair.join("C")
    assert shown(pair.beat("A", tps(0, 1, 2))) == (UNREVOKED, 2, {0, 1})
    assert shown(pair.beat("A", tps(0, 1))) == (STABLE, 4, {0, 1})


@pytest.mark.parametrize("seed", range(30))
def test_no_partition_is_held_twice_whatever_happens_and_all_are_read_in_the_end(
    seed: int,
) -> None:
    """C12; what clients read is what they were told last and have not given up since."""
    rng = Random(seed)
    group = Group(rng.randrange(1, 9))
    reads: dict[str, set[TopicIdPartition]] = {}
    names = [f"m{number}" for number in range(5)]
    for _ in range(300):
        name = rng.choice(names)
        if name not in group.members:
            reads[name] = set()
            group.join(name, *rng.choice([(TOPIC,), (OTHER,), (TOPIC, OTHER)]))
        elif rng.random() < 0.03:
            del group.members[name], group.subscribed[name], reads[name]
            if group.members:
                group.bump()
        elif rng.random() < 0.05:
            group.subscribed[name] = frozenset(rng.choice([(TOPIC,), (), (TOPIC, OTHER)]))
            group.bump()
            group.beat(name, changed=True)
        elif rng.random() < 0.03:
            group.counts[TOPIC] += 1
            group.bump()
        else:
            _follow(group, reads, name, rng)
        owners = [found for read in reads.values() for found in read]
        assert len(owners) == len(set(owners))
    for _ in range(4):
        for name in sorted(group.members):
            _follow(group, reads, name, None)
    assert all(current.state is STABLE for current in group.members.values())
    wanted = frozenset().union(*group.subscribed.values())
    assert sorted(found for read in reads.values() for found in read) == sorted(
        (topic, partition) for topic in wanted for partition in range(group.counts[topic])
    )


def _follow(
    group: Group, reads: dict[str, set[TopicIdPartition]], name: str, rng: Random | None
) -> None:
    """A client beats, and does as it is told; now and then its answer is lost."""
    says_what_it_has = rng is None or rng.random() < 0.5
    current = group.beat(name, frozenset(reads[name]) if says_what_it_has else None)
    if rng is None or rng.random() < 0.8:
        reads[name] = set(current.assigned)
        if rng is None:
            current = group.beat(name, frozenset(reads[name]))
            reads[name] = set(current.assigned)
