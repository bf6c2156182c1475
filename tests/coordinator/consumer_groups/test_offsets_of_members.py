"""Who may commit and fetch offsets of a consumer group. Source: docs/spec/consumer-groups.md §5."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_delete, offset_fetch
from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.coordinator_harness import CODES, NONE, Make, codes_of, topic_id

STALE = ErrorCode.STALE_MEMBER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def commit(
    beats: Beats, member: str, epoch: int, *, index: int = 0, topic: str = "t", version: int = 9
) -> ErrorCode:
    asked = beats.harness.commit(
        5,
        topic=topic,
        index=index,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        version=version,
    )
    return codes_of(asked)[0]


def fetch(beats: Beats, member: str | None, epoch: int, group: str = "g") -> ErrorCode:
    topics = [offset_fetch.Topic(name="t", partition_indexes=[0])]
    asked = offset_fetch.Group(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
    request = offset_fetch.OffsetFetchRequest(groups=[asked])
    answer = beats.harness.ask("offset_fetch", request, 9).answer.groups[0]
    if not answer.error_code:
        assert answer.topics[0].partitions[0].error_code == 0
    return CODES[answer.error_code]


def test_a_member_commits_with_its_epoch(beats: Beats) -> None:
    beats.join("A")
    assert commit(beats, "A", 2) is NONE
    assert commit(beats, "A", 3) is STALE
    assert commit(beats, "A", 1) is STALE  # held since 2
    assert commit(beats, "B", 2) is UNKNOWN
    assert commit(beats, "", -1) is UNKNOWN
    assert beats.harness.committed(topic="t") == 5


def test_an_old_version_cannot_tell_an_epoch(beats: Beats) -> None:
    beats.join("A")
    assert commit(beats, "A", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(beats, "B", 2, version=8) is UNKNOWN


def test_what_is_still_held_is_committed_from_an_earlier_epoch(beats: Beats) -> None:
    """C58, KIP-1251: else commits fail at each rebalance."""
    beats.join("A")
    beats.join("B")
    beats.beat("A", 2)
    assert commit(beats, "A", 2, index=5) is NONE  # being given up
    beats.beat("A", 2, [0, 1, 2])
    assert commit(beats, "A", 2, index=1) is NONE
    assert commit(beats, "A", 2, index=5) is STALE


def test_what_went_and_came_back_takes_no_late_commit(beats: Beats) -> None:
    """C58."""
    beats.join("A")
    beats.join("B")
    beats.beat("A", 2)
    beats.beat("A", 2, [0, 1, 2])
    beats.beat("B", 3)
    beats.beat("B", -1)
    assert beats.beat("A", 3) == (4, {0, 1, 2, 3, 4, 5})
    assert commit(beats, "A", 2, index=0) is NONE
    assert commit(beats, "A", 3, index=5) is STALE
    assert commit(beats, "A", 4, index=5) is NONE


def test_a_static_member_that_is_away_commits_nothing(beats: Beats) -> None:
    """C22."""
    beats.join("S", instance_id="i")
    beats.beat("S", -2, instance_id="i")
    assert commit(beats, "S", 2) is STALE
    assert commit(beats, "S", -2) is UNKNOWN
    beats.join("S2", instance_id="i")
    assert commit(beats, "S", 2) is UNKNOWN
    assert commit(beats, "S2", 2) is NONE


def test_tools_commit_once_nobody_is_left(beats: Beats) -> None:
    beats.join("A")
    assert commit(beats, "", -1) is UNKNOWN
    beats.beat("A", -1)
    assert commit(beats, "", -1) is NONE


def test_a_commit_to_a_group_that_is_not_there(beats: Beats) -> None:
    assert commit(beats, "A", 3) is NOT_FOUND
    assert commit(beats, "A", 3, version=8) is ErrorCode.ILLEGAL_GENERATION


def test_many_partitions_are_judged_together(beats: Beats) -> None:
    """One that the member may not commit holds up the others of the request."""
    beats.join("A")
    beats.join("B")
    beats.beat("A", 2)
    beats.beat("A", 2, [0, 1, 2])
    catalog = beats.harness.catalog
    assert beats.group.partitions_problem("A", 2, [("t", 0), ("t", 1)], catalog) is NONE
    assert beats.group.partitions_problem("A", 2, [("t", 0), ("t", 5)], catalog) is STALE
    assert beats.group.partitions_problem("A", 2, [("gone", 0)], catalog) is STALE


def test_offsets_are_told_to_members_of_their_epoch(beats: Beats) -> None:
    beats.join("A")
    assert fetch(beats, None, -1) is NONE
    assert fetch(beats, "A", 2) is NONE
    assert fetch(beats, "A", 1) is STALE
    assert fetch(beats, "B", 2) is UNKNOWN
    assert fetch(beats, "A", 1, group="other") is NONE


def test_transactions_commit_as_members_do(beats: Beats) -> None:
    """Their versions know no stale epoch (113), so it is 22."""
    beats.join("A")

    def code(member: str, epoch: int) -> ErrorCode:
        fields: dict[str, Any] = {"member_id": member, "generation_id": epoch}
        return codes_of(beats.harness.txn_commit(5, topic="t", **fields))[0]

    assert code("A", 2) is NONE
    assert code("A", 1) is ErrorCode.ILLEGAL_GENERATION
    assert code("B", 2) is UNKNOWN
    assert code("", -1) is NONE


@pytest.mark.parametrize("topic", ["t", "u"])
def test_offsets_of_subscribed_topics_stay(beats: Beats, topic: str) -> None:
    """C59: of names and of what expressions stand for."""
    beats.join("A", ["t"], subscribed_topic_regex="u")
    beats.harness.turn()
    beats.harness.topics.counts["v"] = 1
    assert commit(beats, "A", beats.group.consumers["A"].epoch, topic=topic) is NONE
    asked = [
        offset_delete.Topic(name=name, partitions=[offset_delete.Partition(partition_index=0)])
        for name in (topic, "v")
    ]
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=asked)
    answer = beats.harness.ask("offset_delete", request, 0)
    assert codes_of(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]


def test_no_offset_goes_while_an_expression_is_not_resolved(make_harness: Make) -> None:
    """Until then it is not known which topics a member that was restarted consumes (C41, C59)."""
    harness = make_harness(
        consumer_assignment_interval_ms=0, retention_min=30, retention_check_interval_ms=86_400_000
    )
    beats = Beats(harness)
    epoch, _ = beats.join("A", (), subscribed_topic_regex="t")
    for topic in ("t", "u"):
        assert commit(beats, "A", epoch, topic=topic) is NONE
    harness.catalog.is_offered = False  # so that the session stands still
    harness.wait(30 * 60 + 1)
    harness.catalog.is_offered = True
    beats.beat("A", beats.group.consumers["A"].epoch)  # resolves: not again for ten seconds
    beats.beat("A", -1)
    epoch, _ = beats.join("B", (), subscribed_topic_regex="t")
    sweep = harness.coordinator.expiration.sweep
    assert sweep(beats.group) == 0
    topics = [
        offset_delete.Topic(name="t", partitions=[offset_delete.Partition(partition_index=0)])
    ]
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=topics)
    answer = harness.ask("offset_delete", request, 0)
    assert codes_of(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    harness.wait(11)
    beats.beat("B", epoch)
    assert sweep(beats.group) == 1
    assert (harness.committed(topic="t"), harness.committed(topic="u")) == (5, -1)


def test_offsets_expire_when_nobody_is_left(make_harness: Make) -> None:
    """C60: a retention after the last member left, not after the commit."""
    beats = Beats(make_harness(consumer_assignment_interval_ms=0, retention_min=30))
    beats.join("A")
    commit(beats, "A", 2)
    retention_s = beats.harness.coordinator.config.retention_ms / 1000
    expiration = beats.harness.coordinator.expiration
    beats.harness.catalog.is_offered = False  # so that the session stands still
    beats.harness.wait(retention_s + 1)
    beats.harness.catalog.is_offered = True
    expiration.sweep(beats.group)
    assert beats.harness.committed(topic="t") == 5
    beats.beat("A", -1)
    expiration.sweep(beats.group)
    assert beats.harness.committed(topic="t") == 5
    beats.harness.wait(retention_s + 700)
    assert beats.harness.committed(topic="t") == -1
    assert not beats.harness.coordinator.registry.groups


def test_what_a_tool_commits_to_an_empty_group_stays_a_retention_after_the_commit(
    make_harness: Make,
) -> None:
    """C60: from the later of the commit and the last member's end."""
    harness = make_harness(
        consumer_assignment_interval_ms=0, retention_min=60, retention_check_interval_ms=60_000
    )
    beats = Beats(harness)
    beats.join("A")
    commit(beats, "A", 2, index=1)
    beats.beat("A", -1)
    harness.wait(3000)
    assert commit(beats, "", -1) is NONE
    harness.wait(3000)
    assert harness.committed(topic="t", index=1) == -1
    assert harness.committed(topic="t") == 5
    harness.wait(700)
    assert harness.committed(topic="t") == -1


def test_offsets_outlive_the_kind_of_their_group(beats: Beats) -> None:
    """C52: empty groups change their kind under any policy."""
    beats.join("A")
    commit(beats, "A", 2)
    beats.beat("A", -1)
    member = beats.harness.stable(topics=["t"])[0]
    assert beats.harness.committed(topic="t") == 5
    beats.harness.reload(1)
    assert not beats.harness.group().is_consumer
    assert beats.harness.committed(topic="t") == 5
    beats.harness.leave(member)
    assert beats.join("B")[0] == 2
    assert beats.harness.committed(topic="t") == 5
    beats.harness.reload(2)
    assert beats.beat("B", 2, [0, 1, 2, 3, 4, 5]) == (2, None)
    assert beats.harness.committed(topic="t") == 5


def test_a_commit_on_its_way_survives_a_change_of_kind(beats: Beats) -> None:
    """Nothing that is acknowledged may be lost: both kinds share the offsets."""
    beats.harness.log.is_replicated = False
    asked = beats.harness.commit(7, topic="t")
    joined = beats.send("A", 0, (), rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    assert not asked.is_answered
    partition = beats.harness.coordinator.registry.partition_of("g")
    beats.harness.log.replicate(partition)
    beats.harness.turn()
    beats.harness.log.replicate(partition)
    beats.harness.turn()
    assert codes_of(asked) == [NONE]
    assert joined.answer.member_epoch == 2
    assert beats.harness.committed(topic="t") == 7
    assert beats.group.holders[topic_id("t"), 0] == "A"
