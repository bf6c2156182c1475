"""Clients of different kinds share groups of the consumer protocol (KIP-848).

No partition has two owners at once, as the members themselves see it, and nothing is read twice
but what a member that was killed or fenced had not committed.
Source: docs/spec/consumer-groups.md §2.1 (C12), §7; KIP-848.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.harness.consumer_protocol_clusters import consumer_groups
from tests.harness.deployments import Deployment
from tests.harness.kafka_4 import Kafka4
from tests.harness.protocol_members import (
    CLASSIC,
    CONFLUENT,
    CONSUMER,
    FRANZ,
    JAVA,
    OWN,
    MemberKind,
)
from tests.harness.shared_groups import PARTITIONS, Group, Load, group_at

__all__ = ["consumer_groups"]

_ALL: Final = set(range(PARTITIONS))
_EXCUSED: Final = ("REBALANCE_IN_PROGRESS",)
"""franz-go says so of a commit that is under way when it gives partitions up."""
_EXCUSED_BY_KAFKA: Final = ("STALE_MEMBER_EPOCH", "stale member epoch")
"""Before 4.3 it refuses commits that a heartbeat has overtaken (KIP-1251)."""


def unexpected(group: Group) -> list[str]:
    """Errors of members for which a rebalance is no excuse; our client has none, ever."""
    found = []
    for error in group.ledger.errors:
        is_excused = any(words in error for words in _EXCUSED)
        if isinstance(group.cluster, Kafka4):
            is_excused = is_excused or any(words in error for words in _EXCUSED_BY_KAFKA)
        if not is_excused or error.startswith(OWN.name):
            found.append(error)
    return found


def assert_orderly(group: Group) -> None:
    """Nobody failed, nothing was read twice but after a commit that failed, no two owners."""
    assert unexpected(group) == []
    assert group.ledger.lost == []
    assert group.ledger.ownership.doubles() == []
    assert not group.ledger.repeated() or group.ledger.errors


PAIRS: Final = [
    (OWN, CONFLUENT),
    pytest.param((OWN, JAVA), marks=pytest.mark.nightly),
    pytest.param((CONFLUENT, JAVA), marks=pytest.mark.nightly),
    pytest.param((FRANZ, OWN), marks=pytest.mark.nightly),
    pytest.param((FRANZ, CONFLUENT), marks=pytest.mark.nightly),
    pytest.param((JAVA, FRANZ), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kind.name for kind in kinds))
def test_two_kinds_share_a_group_and_each_takes_over_from_the_other(
    consumer_groups: Deployment, kinds: tuple[MemberKind, MemberKind]
) -> None:
    with group_at(consumer_groups) as group:
        with Load(consumer_groups.bootstrap, group.topic) as load:
            first = group.join(kinds[0])
            group.await_that(lambda: first.owns() == _ALL, "the first has all")
            second = group.join(kinds[1])
            group.await_shared(first, second)
            third = group.join(kinds[0])
            group.await_shared(first, second, third)
            first.close()
            group.await_shared(second, third)
            third.close()
            group.await_that(lambda: second.owns() == _ALL, "the second has all")
        group.await_read(load.sent)
        second.close()
        assert_orderly(group)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("older", "newer", "assignor"),
    [
        (CONFLUENT, OWN, "range"),
        (OWN, JAVA, "range"),
        (OWN, JAVA, "cooperative-sticky"),
        (JAVA, CONFLUENT, "range"),
        (JAVA, CONFLUENT, "cooperative-sticky"),
        (FRANZ, FRANZ, "range"),
        (CONFLUENT, FRANZ, "range"),
    ],
    ids=lambda given: getattr(given, "name", given),
)
def test_a_classic_group_is_replaced_member_by_member_under_load_and_back(
    consumer_groups: Deployment, older: MemberKind, newer: MemberKind, assignor: str
) -> None:
    """Not librdkafka's cooperative-sticky, whose assignments carry data of its own:
    Kafka refuses to convert such a group (KAFKA-18134).
    """
    with group_at(consumer_groups) as group:
        with Load(consumer_groups.bootstrap, group.topic) as load:
            members = [
                group.join(older, protocol=CLASSIC, assignor=assignor),
                group.join(older, protocol=CLASSIC, assignor=assignor),
            ]
            group.await_shared(*members)
            for index in range(2):
                successor = group.join(newer, protocol=CONSUMER)
                group.await_shared(*members, successor)
                members[index].close()
                members[index] = successor
                group.await_shared(*members)
            for index in range(2):
                successor = group.join(older, protocol=CLASSIC, assignor=assignor)
                group.await_shared(*members, successor)
                members[index].close()
                members[index] = successor
                group.await_shared(*members)
        group.await_read(load.sent)
        for member in members:
            member.close()
        assert group.ledger.ownership.doubles() == []
        assert not group.ledger.repeated() or group.ledger.errors


@pytest.mark.parametrize("protocols", [(CLASSIC, CONSUMER), (CONSUMER, CLASSIC)], ids=" then ".join)
def test_who_speaks_the_other_protocol_joins_and_the_group_goes_on(
    consumer_groups: Deployment, protocols: tuple[str, str]
) -> None:
    with group_at(consumer_groups) as group:
        with Load(consumer_groups.bootstrap, group.topic) as load:
            first = group.join(OWN, protocol=protocols[0])
            group.await_that(lambda: first.owns() == _ALL, "the first has all")
            second = group.join(OWN, protocol=protocols[1])
            group.await_shared(first, second)
            second.close()
            group.await_that(lambda: first.owns() == _ALL, "the first has all again")
        group.await_read(load.sent)
        first.close()
        assert group.ledger.ownership.doubles() == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [OWN, CONFLUENT, JAVA, FRANZ], ids=lambda kind: kind.name)
def test_a_coordinator_that_is_killed_in_the_middle_of_a_reconciliation(
    consumer_groups: Deployment, kind: MemberKind
) -> None:
    with group_at(consumer_groups) as group:
        with Load(consumer_groups.bootstrap, group.topic) as load:
            slow = group.join(kind, slow_s=3.0)
            group.await_that(lambda: slow.owns() == _ALL, "the first has all")
            group.await_that(lambda: group.ledger.read() > 0, "it reads")
            other = group.join(OWN)
            group.await_that(lambda: slow.name in group.ledger.revoking, "the first gives up")
            consumer_groups.kill_all()
            consumer_groups.start_all()
            group.await_shared(slow, other)
        group.await_read(load.sent)
        slow.close()
        other.close()
        assert group.ledger.ownership.doubles() == []
        assert not group.ledger.repeated() or group.ledger.errors or group.ledger.lost


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [OWN, CONFLUENT, JAVA, FRANZ], ids=lambda kind: kind.name)
def test_who_never_gives_up_is_fenced_and_the_others_go_on(
    consumer_groups: Deployment, kind: MemberKind
) -> None:
    with group_at(consumer_groups) as group:
        with Load(consumer_groups.bootstrap, group.topic) as load:
            slow = group.join(kind, slow_s=9.0, max_poll_ms=3_000)
            group.await_that(lambda: slow.owns() == _ALL, "the first has all")
            other = group.join(OWN)
            group.await_that(lambda: other.owns() == _ALL, "the other has all")
        group.await_read(load.sent)
        if kind is not FRANZ:  # it may be fenced over and over, giving up what it was given since
            group.await_shared(slow, other)
        slow.kill()
        other.close()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [OWN, CONFLUENT, JAVA, FRANZ], ids=lambda kind: kind.name)
def test_what_a_killed_member_had_goes_to_the_others_after_its_session(
    consumer_groups: Deployment, kind: MemberKind
) -> None:
    with group_at(consumer_groups) as group:
        with Load(consumer_groups.bootstrap, group.topic) as load:
            victim, other = group.join(kind), group.join(OWN)
            group.await_shared(victim, other)
            had = victim.owns()
            victim.kill()
            group.await_that(lambda: other.owns() == _ALL, "the other has all")
        group.await_read(load.sent)
        other.close()
        assert {partition for partition, _ in group.ledger.repeated()} <= had
        assert group.ledger.ownership.doubles() == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [OWN, CONFLUENT, JAVA, FRANZ], ids=lambda kind: kind.name)
def test_a_static_member_of_each_kind_comes_back_to_what_it_had(
    consumer_groups: Deployment, kind: MemberKind
) -> None:
    with group_at(consumer_groups) as group:
        other = group.join(OWN)
        static = group.join(kind, instance="clerk")
        group.await_shared(static, other)
        had, others = static.owns(), other.owns()
        static.close()
        again = group.join(kind, instance="clerk")
        group.await_that(lambda: again.owns() == had, "it has what it had")
        assert other.owns() == others
        again.close()
        other.close()
        assert group.ledger.ownership.doubles() == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [OWN, CONFLUENT, JAVA], ids=lambda kind: kind.name)
def test_a_member_may_choose_the_assignor_of_the_coordinator(
    consumer_groups: Deployment, kind: MemberKind
) -> None:
    with group_at(consumer_groups) as group:
        members = [group.join(kind, assignor="range"), group.join(kind, assignor="range")]
        group.await_shared(*members)
        shares = sorted(sorted(member.owns()) for member in members)
        assert shares == [[0, 1, 2], [3, 4, 5]]
        for member in members:
            member.close()
