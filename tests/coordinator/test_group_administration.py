"""What tools see and delete (docs/spec/coordinator.md §1.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_groups, describe_groups, list_groups, offset_delete
from barnabas.protocol.offsets_topic import group_key, offset_key
from tests.coordinator.coordinator_harness import (
    CALLER,
    CODES,
    Asked,
    CoordinatorHarness,
    codes_of,
    partition_of,
)

G = partition_of("g")


def described(
    harness: CoordinatorHarness, group: str = "g", version: int = 5
) -> describe_groups.Group:
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    found: describe_groups.Group = harness.ask("describe_groups", request, version).answer.groups[0]
    return found


def listed(
    harness: CoordinatorHarness, states: Sequence[str] = (), types: Sequence[str] = ()
) -> dict[str, str]:
    request = list_groups.ListGroupsRequest(states_filter=states, types_filter=types)
    version = 5 if types else 4
    groups = harness.ask("list_groups", request, version).answer.groups
    return {group.group_id: group.group_state for group in groups}


def delete(harness: CoordinatorHarness, *groups: str) -> Asked:
    request = delete_groups.DeleteGroupsRequest(groups_names=groups)
    return harness.ask("delete_groups", request, 2)


def delete_offsets(harness: CoordinatorHarness, *partitions: tuple[str, int]) -> Asked:
    request = offset_delete.OffsetDeleteRequest(
        group_id="g",
        topics=[
            offset_delete.Topic(
                name=topic, partitions=[offset_delete.Partition(partition_index=index)]
            )
            for topic, index in partitions
        ],
    )
    return harness.ask("offset_delete", request, 0)


def erased(harness: CoordinatorHarness) -> set[bytes | None]:
    return {record.key for record in harness.log.records(G) if record.value is None}


# -- listing ---------------------------------------------------------------------------------


def test_a_cluster_in_which_no_group_was_ever_used_has_none(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness()
    harness.coordinator.stop()
    request = list_groups.ListGroupsRequest()
    for version in range(6):
        assert harness.ask("list_groups", request, version).code is CODES[15]
    del harness.topics.counts[OFFSETS_TOPIC]
    for version in range(6):
        asked = harness.ask("list_groups", request, version)
        assert (asked.code, list(asked.answer.groups)) == (CODES[0], [])
    assert harness.topics.creations == 0


# -- describing ------------------------------------------------------------------------------


def test_where_nobody_forbids_anything_every_operation_is_told_of_who_asks_for_them(
    harness: CoordinatorHarness,
) -> None:
    harness.stable()
    for is_asked, version, operations in (
        (False, 5, (-(2**31), -(2**31))),
        (True, 5, (328, 328)),  # a dead group is no error before version 6
        (True, 6, (328, -(2**31))),
    ):
        request = describe_groups.DescribeGroupsRequest(
            groups=["g", "gone"], include_authorized_operations=is_asked
        )
        groups = harness.ask("describe_groups", request, version).answer.groups
        assert tuple(group.authorized_operations for group in groups) == operations


def test_a_stable_group_is_described_whole(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    group = described(harness)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (seen,) = group.members
    assert (seen.member_id, seen.client_id, seen.client_host) == (
        member,
        CALLER.client_id,
        f"/{CALLER.host}",
    )
    assert seen.member_metadata
    assert seen.member_assignment == b"share of " + member.encode()
    assert group.authorized_operations == -2147483648


def test_a_rebalancing_group_shows_its_members_without_metadata_and_assignment(
    harness: CoordinatorHarness,
) -> None:
    harness.stable()
    harness.join()
    group = described(harness)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert len(group.members) == 2
    assert all(not (m.member_metadata or m.member_assignment) for m in group.members)


def test_an_unknown_group_is_dead_without_an_error(harness: CoordinatorHarness) -> None:
    group = described(harness)
    assert (group.error_code, group.group_state, list(group.members)) == (0, "Dead", [])


# -- listing ---------------------------------------------------------------------------------


def test_groups_are_listed_with_their_state_and_those_of_offsets_only_as_empty(
    harness: CoordinatorHarness,
) -> None:
    harness.stable(group="s")
    harness.commit(1, group="e")
    assert listed(harness) == {"s": "Stable", "e": "Empty"}


@pytest.mark.parametrize(
    ("states", "found"), [(["STABLE"], {"s"}), (["stable", "Empty"], {"s", "e"}), (["Dead"], set())]
)
def test_a_filter_of_states_ignores_case(
    harness: CoordinatorHarness, states: list[str], found: set[str]
) -> None:
    harness.stable(group="s")
    harness.commit(1, group="e")
    assert listed(harness, states=states).keys() == found


@pytest.mark.parametrize(("types", "found"), [(["Classic"], {"e"}), (["consumer"], set())])
def test_every_group_is_of_the_classic_type(
    harness: CoordinatorHarness, types: list[str], found: set[str]
) -> None:
    harness.commit(1, group="e")
    assert listed(harness, types=types).keys() == found


# -- deleting groups -------------------------------------------------------------------------


def test_an_empty_group_is_deleted_with_its_offsets_for_good(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
    harness.leave(member)
    assert delete(harness, "g").answer.results[0].error_code == 0
    assert "g" not in listed(harness)
    assert erased(harness) == {offset_key("g", "orders", 0), group_key("g")}
    harness.reload()
    assert harness.committed() == -1


def test_each_group_to_delete_has_its_own_code(harness: CoordinatorHarness) -> None:
    harness.stable(group="busy")
    harness.commit(1, group="idle")
    answer = delete(harness, "busy", "idle", "nobody", "idle").answer
    assert {item.group_id: CODES[item.error_code] for item in answer.results} == {
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "idle": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_a_deletion_succeeds_even_when_its_tombstones_cannot_be_written(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert delete(harness, "g").answer.results[0].error_code == 0
    assert harness.committed() == -1


def test_a_deletion_is_answered_when_its_tombstones_are_safe(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.log.is_replicated = False
    asked = delete(harness, "g")
    assert not asked.is_answered
    harness.log.replicate(G)
    harness.record()
    assert asked.is_answered


def test_a_commit_under_way_does_not_bring_a_deleted_group_back(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    commit = harness.commit(1)
    delete(harness, "g")
    harness.log.replicate(G)
    assert codes_of(commit) == [ErrorCode.NONE]
    assert "g" not in listed(harness)
    harness.reload()
    assert "g" not in listed(harness)


def test_a_group_of_very_many_offsets_is_deleted_in_several_batches(
    harness: CoordinatorHarness,
) -> None:
    harness.topics.counts["wide"] = 2000
    for index in range(2000):
        harness.commit(index, topic="wide", index=index)
    harness.log.bytes_max = 10_000
    assert delete(harness, "g").answer.results[0].error_code == 0
    assert len(erased(harness)) == 2000


def test_the_name_of_a_deleted_group_can_be_used_again(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    delete(harness, "g")
    harness.commit(2)
    assert harness.committed() == 2
    harness.reload()
    assert harness.committed() == 2


# -- deleting offsets ------------------------------------------------------------------------


def test_offsets_of_an_empty_group_are_deleted_each_with_its_own_code(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.commit(2, topic="clicks")
    asked = delete_offsets(harness, ("orders", 0), ("orders", 9), ("orders", 3), ("nowhere", 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes_of(asked) == [ErrorCode.NONE, unknown, ErrorCode.NONE, unknown]
    assert (harness.committed(), harness.committed(topic="clicks")) == (-1, 2)
    assert erased(harness) == {offset_key("g", "orders", 0)}


def test_offsets_of_subscribed_topics_are_kept(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable(topics=["orders"])
    for topic in ("orders", "clicks"):
        harness.commit(1, topic=topic, member_id=member, generation_id_or_member_epoch=1)
    asked = delete_offsets(harness, ("orders", 0), ("clicks", 0))
    assert codes_of(asked) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert (harness.committed(), harness.committed(topic="clicks")) == (1, -1)


def test_when_a_subscription_cannot_be_read_every_topic_counts_as_subscribed(
    harness: CoordinatorHarness,
) -> None:
    harness.stable(protocols={"range": b"\xff"})
    asked = delete_offsets(harness, ("clicks", 0))
    assert codes_of(asked) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_busy_group_of_another_protocol_type_keeps_everything(
    harness: CoordinatorHarness,
) -> None:
    harness.stable(protocol_type="connect", protocols={"eager": b""})
    asked = delete_offsets(harness, ("orders", 0))
    assert asked.code is ErrorCode.NON_EMPTY_GROUP
    assert not asked.answer.topics


def test_offsets_whose_tombstones_cannot_be_written_are_not_reported_as_deleted(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.log.append_fails_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = delete_offsets(harness, ("orders", 0))
    assert asked.code is ErrorCode.NOT_COORDINATOR


def test_a_group_without_members_goes_with_its_last_offset(harness: CoordinatorHarness) -> None:
    harness.commit(5)
    harness.commit(6, index=1)
    delete_offsets(harness, ("orders", 0))
    assert "g" in listed(harness)
    delete_offsets(harness, ("orders", 1))
    assert "g" not in listed(harness)
    assert described(harness).group_state == "Dead"
    assert delete(harness, "g").answer.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_goes_with_the_only_topic_it_read(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(5)
    harness.coordinator.topics_deleted(["orders"])
    assert "g" not in listed(harness)


def test_a_group_with_a_member_outlives_its_offsets(harness: CoordinatorHarness) -> None:
    harness.stable()
    harness.commit(5)
    harness.coordinator.topics_deleted(["orders"])
    assert listed(harness) == {"g": "Stable"}
