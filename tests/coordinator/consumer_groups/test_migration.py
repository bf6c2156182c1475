"""An application is rolled from the classic protocol to the new one, and back.

Source: docs/spec/consumer-groups.md §5, C53 to C57, and §7, C81.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.coordinator.consumer_groups.consumer_group import ConsumerGroup
from barnabas.protocol import consumer_protocol
from barnabas.protocol.consumer_protocol import Subscription, TopicPartitions
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.coordinator_harness import NONE, Asked, Make, codes_of

ALL = {0, 1, 2, 3, 4, 5}
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"]}


def subscription(owned: Iterable[int] | None = None, topics: Iterable[str] = ("t",)) -> bytes:
    """Of a cooperative member with what it has; of an eager one without."""
    if owned is None:
        return consumer_protocol.build_subscription(Subscription(topics=list(topics)))
    partitions = [TopicPartitions(topic="t", partitions=list(owned))] if list(owned) else []
    found = Subscription(topics=list(topics), owned_partitions=partitions)
    return consumer_protocol.build_subscription(found, 1)


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    assigned = [TopicPartitions(topic="t", partitions=list(partitions))] if partitions else []
    return consumer_protocol.build_assignment(
        consumer_protocol.Assignment(assigned_partitions=assigned, user_data=user_data), 1
    )


class Rolled(Beats):
    """A group whose members speak both protocols."""

    assignor = "sticky"

    def rejoin(self, member: str, owned: Iterable[int] | None = None, **fields: Any) -> Asked:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.harness.join(
            member, protocols={self.assignor: subscription(owned)}, version=5, **fields
        )

    def joined(self, member: str, owned: Iterable[int] | None = None, **fields: Any) -> int:
        """The generation that a classic member is told."""
        asked = self.rejoin(member, owned, **fields)
        assert asked.code is NONE, asked.code
        self.check()
        assert (asked.answer.leader, list(asked.answer.members)) == ("", [])
        return int(asked.answer.generation_id)

    def synced(self, member: str, generation: int) -> set[int]:
        asked = self.harness.sync(member, generation)
        assert asked.code is NONE, asked.code
        found = consumer_protocol.parse_assignment(bytes(asked.answer.assignment))
        return {partition for topic in found.assigned_partitions for partition in topic.partitions}

    def classic(self, *partitions: int, user_data: bytes | None = None) -> str:
        """A Stable classic group of one member with these partitions."""
        first = self.rejoin("")
        member: str = self.rejoin(first.answer.member_id, ()).answer.member_id
        generation = self.harness.group().generation
        shares = {member: assignment(*partitions, user_data=user_data)}
        assert self.harness.sync(member, generation, shares).code is NONE
        return member


@pytest.fixture
def rolled(make_harness: Make) -> Rolled:
    return Rolled(make_harness(consumer_assignment_interval_ms=0))


def test_a_cooperative_member_gives_up_and_goes_on(rolled: Rolled) -> None:
    """C81."""
    member = rolled.classic(*ALL)
    assert rolled.join("A") == (2, set())
    assert rolled.shown == ("Reconciling", 2, 2)
    assert rolled.harness.heartbeat(member, 1) is AGAIN
    assert rolled.joined(member, ALL) == 1
    assert rolled.synced(member, 1) == {0, 1, 2}
    assert rolled.beat("A", 2) == (2, None)
    assert rolled.harness.heartbeat(member, 1) is AGAIN
    assert rolled.joined(member, {0, 1, 2}) == 2
    assert rolled.synced(member, 2) == {0, 1, 2}
    assert rolled.harness.heartbeat(member, 2) is NONE
    assert rolled.beat("A", 2) == (2, {3, 4, 5})
    assert rolled.shown == ("Stable", 2, 2)


def test_an_eager_member_has_given_up_all_when_it_joins(rolled: Rolled) -> None:
    """C81."""
    member = rolled.classic(*ALL)
    rolled.join("A")
    assert rolled.harness.heartbeat(member, 1) is AGAIN
    assert rolled.joined(member) == 2
    assert rolled.synced(member, 2) == {0, 1, 2}
    assert rolled.beat("A", 2) == (2, {3, 4, 5})


def test_the_last_member_of_the_new_protocol_leaves_a_classic_group(rolled: Rolled) -> None:
    """C54."""
    member = rolled.classic(*ALL)
    rolled.join("A")
    rolled.joined(member)
    rolled.synced(member, 2)
    rolled.beat("A", 2)
    assert rolled.beat("A", -1) == (-1, None)
    group = rolled.harness.group()
    assert not group.is_consumer
    assert rolled.harness.heartbeat(member, 3) is AGAIN
    again = rolled.rejoin(member, {0, 1, 2})
    assert (again.code, again.answer.generation_id, again.answer.leader) == (NONE, 4, member)
    assert rolled.harness.sync(member, 4, {member: assignment(*ALL)}).code is NONE
    rolled.harness.reload()
    assert not rolled.harness.group().is_consumer
    assert rolled.harness.heartbeat(member, 4) is NONE


def test_who_was_fenced_meanwhile_joins_the_classic_group_again(rolled: Rolled) -> None:
    """C54: Kafka answers 69, which ends its clients."""
    member = rolled.classic(*ALL)
    rolled.join("A")
    rolled.joined(member)
    rolled.synced(member, 2)
    group = rolled.group
    rolled.harness.coordinator.consumer_groups.remove(group, [group.consumers["A"]], "fenced")
    assert not rolled.harness.group().is_consumer
    assert rolled.refused("A", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rolled.harness.heartbeat(member, 3) is AGAIN
    generation = rolled.rejoin(member, {0, 1, 2}).answer.generation_id
    assert rolled.harness.sync(member, generation, {member: assignment(*ALL)}).code is NONE
    assert rolled.join("A") == (generation + 1, set())
    assert rolled.harness.group().is_consumer


def test_a_session_that_ends_leaves_a_classic_group_as_well(rolled: Rolled) -> None:
    """C54, KAFKA-18150."""
    member = rolled.classic(*ALL)
    rolled.join("A")
    rolled.joined(member, session_timeout_ms=60_000)
    rolled.synced(member, 2)
    for _ in range(6):
        rolled.harness.wait(8)
        if rolled.harness.group().is_consumer:
            rolled.harness.heartbeat(member, 2)
    assert not rolled.harness.group().is_consumer
    assert member in rolled.harness.group().members


@pytest.mark.parametrize("steps", range(1, 6))
def test_another_coordinator_goes_on_with_both(rolled: Rolled, steps: int) -> None:
    """C77 with members of both protocols."""
    member = rolled.classic(*ALL)
    generation = 1
    for step in range(1, 6):
        if step == 1:
            rolled.join("A")
        elif step == 2:
            assert rolled.joined(member, ALL) == 1
        elif step == 3:
            assert rolled.synced(member, 1) == {0, 1, 2}
        elif step == 4:
            generation = rolled.joined(member, {0, 1, 2})
        else:
            assert rolled.synced(member, generation) == {0, 1, 2}
        if step == steps:
            rolled.harness.reload(1)
    assert rolled.beat("A", 2, []) == (2, {3, 4, 5})
    assert rolled.shown == ("Stable", 2, 2)


def test_a_rebalance_of_classic_members_is_waited_for(rolled: Rolled) -> None:
    """[decision]: who joins asks again (14), and nobody loses what he is about to be given."""
    rolled.classic(*ALL)
    newcomer = rolled.rejoin(rolled.rejoin("").answer.member_id, ())
    assert not newcomer.is_answered
    assert rolled.refused("A", 0, (), **JOIN) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not rolled.harness.group().is_consumer


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_policy_may_keep_classic_groups_as_they_are(make_harness: Make, policy: str) -> None:
    """C53."""
    rolled = Rolled(make_harness(consumer_migration_policy=policy))
    member = rolled.classic(*ALL)
    assert rolled.refused("A", 0, (), **JOIN) is NOT_FOUND
    assert rolled.harness.heartbeat(member, 1) is NONE


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_policy_may_keep_consumer_groups_as_they_are(make_harness: Make, policy: str) -> None:
    """C54, C55."""
    settings = {"consumer_assignment_interval_ms": 0, "consumer_migration_policy": policy}
    rolled = Rolled(make_harness(**settings))
    rolled.join("A")
    asked = rolled.rejoin("X", ())
    assert (asked.code is INCONSISTENT) is (policy == "disabled")
    rolled.beat("A", -1)
    assert rolled.harness.group().is_consumer


def test_an_assignor_of_the_applications_own_keeps_a_group_classic(rolled: Rolled) -> None:
    """C53, KAFKA-18134."""
    rolled.assignor = "own"
    rolled.classic(*ALL, user_data=b"x")
    assert rolled.refused("A", 0, (), **JOIN) is NOT_FOUND


def test_what_librdkafkas_cooperative_assignor_adds_keeps_no_group_classic(rolled: Rolled) -> None:
    """From its second generation on there are user data in its assignments."""
    rolled.assignor = "cooperative-sticky"
    rolled.classic(*ALL, user_data=b"x")
    rolled.join("A")
    assert rolled.harness.group().is_consumer


def test_a_classic_group_of_another_kind_stays(rolled: Rolled) -> None:
    rolled.harness.stable(protocol_type="connect", protocols={"p": b""})
    assert rolled.refused("A", 0, (), **JOIN) is NOT_FOUND


def test_a_classic_member_learns_its_id_first(rolled: Rolled) -> None:
    """C55."""
    rolled.join("A")
    asked = rolled.rejoin("")
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    assert rolled.joined(asked.answer.member_id) == 3
    assert rolled.synced(asked.answer.member_id, 3) == set()


def test_classic_members_need_a_protocol_in_common(rolled: Rolled) -> None:
    """C55."""
    rolled.join("A")
    rolled.joined("X", ())
    other = rolled.harness.join("Y", protocols={"other": subscription(())}, version=5)
    assert other.code is INCONSISTENT
    unreadable = rolled.harness.join("Y", protocols={"sticky": b""}, version=5)
    assert unreadable.code is INCONSISTENT


def test_who_is_not_of_its_epoch_is_told_so(rolled: Rolled) -> None:
    """C56."""
    rolled.join("A")
    rolled.joined("X", ())
    assert rolled.harness.heartbeat("X", 2) is ErrorCode.ILLEGAL_GENERATION
    assert rolled.harness.heartbeat("Y", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rolled.harness.heartbeat("A", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rolled.harness.sync("X", 2).code is ErrorCode.ILLEGAL_GENERATION
    assert rolled.harness.sync("Y", 3).code is ErrorCode.UNKNOWN_MEMBER_ID
    wrong = rolled.harness.sync("X", 3, version=5, protocol_type="consumer", protocol_name="no")
    assert wrong.code is INCONSISTENT


def test_a_classic_member_that_does_not_join_again_is_fenced(rolled: Rolled) -> None:
    """C56: the first 27 starts the wait."""
    rolled.join("A")
    rolled.joined("X", (), rebalance_timeout_ms=20_000)
    rolled.synced("X", 3)
    rolled.join("B")
    for _ in range(4):
        assert rolled.harness.heartbeat("X", 3) is AGAIN
        rolled.harness.wait(5)
    assert rolled.harness.heartbeat("X", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_sync_is_fenced(rolled: Rolled) -> None:
    rolled.join("A")
    rolled.joined("X", (), rebalance_timeout_ms=9_000, session_timeout_ms=30_000)
    rolled.harness.wait(8)
    assert "X" in rolled.group.consumers
    rolled.harness.wait(2)
    assert "X" not in rolled.group.consumers


def test_members_of_both_protocols_leave_by_leave_group(rolled: Rolled) -> None:
    """C57, C23: one change for all."""
    rolled.join("A")
    rolled.join("S", instance_id="i")
    rolled.joined("X", ())
    epoch = rolled.group.epoch
    assert rolled.harness.leave("A").answer.members[0].error_code == 0
    assert rolled.harness.leave("", instance_id="i").answer.members[0].error_code == 0
    assert rolled.harness.leave("A").answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert epoch == 4
    assert not rolled.harness.group().is_consumer  # only X is left


def test_a_classic_member_commits_with_its_generation(rolled: Rolled) -> None:
    """It knows 22 and no stale epoch."""
    member = rolled.classic(*ALL)
    rolled.join("A")

    def commit(generation: int, index: int = 0) -> ErrorCode:
        fields: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation}
        return codes_of(rolled.harness.commit(5, topic="t", index=index, version=7, **fields))[0]

    assert commit(1) is NONE
    assert commit(2) is ErrorCode.ILLEGAL_GENERATION
    assert rolled.joined(member) == 2
    assert commit(2) is NONE
    assert commit(1, 0) is NONE  # it has had this one since
    assert commit(1, 5) is ErrorCode.ILLEGAL_GENERATION
    assert rolled.harness.committed(topic="t") == 5


def test_a_static_member_changes_its_protocol_in_its_place(rolled: Rolled) -> None:
    """C53."""
    rolled.join("A")
    assert rolled.joined("", group_instance_id="i") == 3
    static = rolled.group.static_consumers["i"]
    rolled.beat("A", 2)
    rolled.beat("A", 2, [0, 1, 2])
    assert rolled.joined(static, (), group_instance_id="i") == 3
    assert rolled.harness.sync(static, 3, group_instance_id="i").code is NONE
    epoch = rolled.group.epoch
    assert rolled.join("S", instance_id="i") == (3, {3, 4, 5})
    assert rolled.group.epoch == epoch
    assert not rolled.group.consumers["S"].is_classic


def test_a_group_is_what_it_was_in_every_part_of_its_log(make_harness: Make) -> None:
    """C50, C53, C54: batches that were cut anywhere in a change of kind."""
    rolled = Rolled(make_harness(consumer_assignment_interval_ms=0))
    rolled.harness.log.bytes_max = 300
    member = rolled.classic(*ALL)
    rolled.join("A")
    rolled.joined(member)
    rolled.beat("A", 2)
    rolled.beat("A", -1)
    partition = rolled.harness.coordinator.registry.partition_of("g")
    batches = rolled.harness.log.partition(partition).batches
    kinds = []
    for count in range(1, len(batches) + 1):
        other = Rolled(make_harness(consumer_assignment_interval_ms=0))
        hosted = other.harness.log.partition(partition)
        for data in batches[:count]:
            hosted.append(bytearray(data))
        hosted.high_watermark = hosted.end
        other.harness.reload()
        kinds.append(isinstance(other.harness.group(), ConsumerGroup))
    assert [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind] == [
        False,
        True,
        False,
    ]


def test_nothing_is_written_of_a_group_behind_its_successor(rolled: Rolled) -> None:
    """C47, C54: also where its last record could not be written."""
    rolled.classic(*ALL)
    rolled.join("A")
    rolled.harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    former = rolled.group
    assert rolled.refused("A", -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rolled.harness.log.append_fails_with = None
    machine = rolled.harness.coordinator.consumer_groups
    told: list[ErrorCode] = []
    machine.writes.when_committed(former, told.append)
    rolled.harness.wait(70)  # the classic member does not come again, either
    rolled.harness.reload()
    assert not rolled.harness.group().is_consumer
    assert told
