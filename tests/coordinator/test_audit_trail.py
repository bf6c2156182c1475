"""The history of offset changes: what is recorded, and what never.

Source: docs/spec/coordinator.md §3.8.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from barnabas.coordinator import audit_queue, audit_trail
from barnabas.coordinator.ports import Caller
from barnabas.protocol.audit_topic import AuditRecord, tool_client_id
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_groups, offset_commit, offset_delete
from tests.coordinator.coordinator_harness import CALLER, Asked, CoordinatorHarness, partition_of

TOOL = Caller(
    client_id=tool_client_id("5f0c", "reset --to-offset 3: bug 12"),
    host="10.0.0.9",
    principal="User:alice",
)
ONLY_OFFSETS = "offsets-only"


def recorded(harness: CoordinatorHarness) -> list[AuditRecord]:
    """What is written by the time that everything noted is."""
    harness.wait(1)
    return harness.audit.records


def moves(records: Sequence[AuditRecord]) -> list[tuple[str, str, int, int | None, int | None]]:
    return [
        (record.action, record.topic, record.partition, record.old_offset, record.new_offset)
        for record in records
    ]


def emptied(harness: CoordinatorHarness, *offsets: int) -> None:
    """A group that has had a member, which committed ``offsets`` of orders."""
    (member,) = harness.stable()
    for index, offset in enumerate(offsets):
        harness.commit(offset, index=index, member_id=member, generation_id_or_member_epoch=1)
    harness.leave(member)


def forget(harness: CoordinatorHarness, *indexes: int, caller: Caller = CALLER) -> Asked:
    partitions = [offset_delete.Partition(partition_index=index) for index in indexes]
    topics = [offset_delete.Topic(name="orders", partitions=partitions)]
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=topics)
    return harness.ask("offset_delete", request, 0, caller=caller)


def delete(harness: CoordinatorHarness, group: str = "g", caller: Caller = CALLER) -> Asked:
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])
    return harness.ask("delete_groups", request, 2, caller=caller)


# -- C3.10 -----------------------------------------------------------------------------------


def test_an_ordinary_commit_leaves_no_audit_record(harness: CoordinatorHarness) -> None:
    emptied(harness, 5)
    assert recorded(harness) == []


def test_an_administrative_reset_leaves_one_audit_record_for_each_changed_partition(
    harness: CoordinatorHarness,
) -> None:
    emptied(harness, 5, 6, 7)
    request = offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            offset_commit.Topic(
                name="orders",
                partitions=[
                    offset_commit.Partition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index, offset in enumerate((1, 6, 9, 4))
                ],
            )
        ],
    )
    harness.ask("offset_commit", request, 8, caller=TOOL)
    records = recorded(harness)
    assert moves(records) == [
        ("commit", "orders", 0, 5, 1),
        ("commit", "orders", 2, 7, 9),
        ("commit", "orders", 3, None, 4),
    ]
    assert {(record.change, record.reason) for record in records} == {
        ("5f0c", "reset --to-offset 3: bug 12")
    }
    assert {(record.principal, record.host, record.client_id) for record in records} == {
        ("User:alice", "10.0.0.9", TOOL.client_id)
    }
    assert {key for key, _ in harness.audit.entries} == {b"g"}


# -- what is recorded ------------------------------------------------------------------------


def test_a_commit_from_outside_a_group_that_has_had_members_is_recorded(
    harness: CoordinatorHarness,
) -> None:
    emptied(harness, 5)
    harness.commit(2, metadata="by hand")
    (record,) = recorded(harness)
    assert moves([record]) == [("commit", "orders", 0, 5, 2)]
    assert (record.old_metadata, record.new_metadata) == ("", "by hand")
    assert record.change, "it has a name of its own"
    assert record.reason == ""


def test_a_group_has_had_members_also_after_its_coordinator_moved(
    harness: CoordinatorHarness,
) -> None:
    emptied(harness, 5)
    harness.reload()
    harness.commit(2)
    assert moves(recorded(harness)) == [("commit", "orders", 0, 5, 2)]


def test_a_commit_of_a_simple_consumer_is_not_recorded(harness: CoordinatorHarness) -> None:
    harness.commit(1, group=ONLY_OFFSETS)
    harness.commit(2, group=ONLY_OFFSETS)
    assert recorded(harness) == []


def test_what_our_tools_commit_is_recorded_for_any_group(harness: CoordinatorHarness) -> None:
    harness.commit(1, group=ONLY_OFFSETS)
    harness.commit(2, group=ONLY_OFFSETS, caller=TOOL)
    assert moves(recorded(harness)) == [("commit", "orders", 0, 1, 2)]


def test_a_tool_that_changes_nothing_leaves_no_record(harness: CoordinatorHarness) -> None:
    harness.commit(1, group=ONLY_OFFSETS)
    harness.commit(1, group=ONLY_OFFSETS, caller=TOOL)
    assert recorded(harness) == []


def test_forgotten_offsets_are_recorded(harness: CoordinatorHarness) -> None:
    emptied(harness, 5, 6)
    forget(harness, 1, 3, caller=TOOL)
    assert moves(recorded(harness)) == [("forget", "orders", 1, 6, None)]


def test_offsets_of_a_deleted_group_are_recorded(harness: CoordinatorHarness) -> None:
    emptied(harness, 5, 6)
    delete(harness)
    records = recorded(harness)
    assert moves(records) == [("delete", "orders", 0, 5, None), ("delete", "orders", 1, 6, None)]
    assert len({record.change for record in records}) == 1


def test_groups_deleted_beside_one_whose_tombstones_fail_are_recorded(
    harness: CoordinatorHarness,
) -> None:
    """Each answer is a success: the tombstones of the others are in the log."""
    away, others = "g", ["g0", "g1", "g2", "g3", "g4"]
    kept = [group for group in others if partition_of(group) != partition_of(away)]
    assert kept
    for group in (away, *kept):
        harness.commit(5, group=group)
    partition = harness.log.partition(partition_of(away))
    partition.leader_epoch = 7  # an append of this term ends with NOT_LEADER_OR_FOLLOWER
    request = delete_groups.DeleteGroupsRequest(groups_names=[away, *kept])
    asked = harness.ask("delete_groups", request, 2)
    assert {result.error_code for result in asked.answer.results} == {ErrorCode.NONE}
    records = recorded(harness)
    assert sorted(record.group for record in records) == kept
    assert len({record.change for record in records}) == 1, "one request"


def test_a_group_whose_tombstones_timed_out_is_recorded(harness: CoordinatorHarness) -> None:
    """They are in the leader's log, and its answer is a success."""
    harness.commit(5, group=ONLY_OFFSETS)
    harness.log.append_fails_with = ErrorCode.REQUEST_TIMED_OUT
    asked = delete(harness, ONLY_OFFSETS)
    assert asked.answer.results[0].error_code == ErrorCode.NONE
    assert moves(recorded(harness)) == [("delete", "orders", 0, 5, None)]


def test_a_reset_that_is_repeated_at_the_next_coordinator_is_recorded(
    harness: CoordinatorHarness,
) -> None:
    """The one before was killed between the commit and its record: nothing differs any more."""
    emptied(harness, 500)
    harness.audit.is_away = True
    asked = harness.commit(0)
    assert not asked.is_answered
    after = CoordinatorHarness(loop=harness.loop, log=harness.log, is_elected=False)
    after.elect(partition_of("g"), 5)
    after.turn(100)
    after.commit(0, caller=TOOL)
    (record,) = recorded(after)
    assert moves([record]) == [("commit", "orders", 0, 0, 0)]
    assert (record.principal, record.change) == ("User:alice", "5f0c")
    after.commit(0, caller=TOOL)
    assert len(recorded(after)) == 1, "that one is of this coordinator"
    after._running.cancel()
    after.turn()


def test_what_is_refused_leaves_no_record(harness: CoordinatorHarness) -> None:
    harness.stable()
    assert (
        harness.commit(1).answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    )
    delete(harness)
    forget(harness, 0)
    assert recorded(harness) == []


def test_a_commit_that_the_log_refused_leaves_no_record(harness: CoordinatorHarness) -> None:
    emptied(harness, 5)
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.commit(1)
    harness.log.append_fails_with = None
    assert recorded(harness) == []


def test_deleted_topics_and_expired_offsets_leave_no_record(harness: CoordinatorHarness) -> None:
    emptied(harness, 5)
    harness.coordinator.topics_deleted(["orders"])
    assert recorded(harness) == []


def test_every_commit_is_recorded_when_the_history_is_enabled(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(history_enable=True)
    emptied(harness, 5)
    harness.commit(1, group=ONLY_OFFSETS)
    harness.commit(1, group=ONLY_OFFSETS)
    records = recorded(harness)
    assert moves(records) == [
        ("commit", "orders", 0, None, 5),
        ("commit", "orders", 0, None, 1),
        ("commit", "orders", 0, 1, 1),
    ]
    assert {record.change for record in records} == {""}, "nothing that was done by hand"


def test_pipelined_commits_are_recorded_one_by_one_in_their_order(
    harness: CoordinatorHarness,
) -> None:
    emptied(harness, 5)
    asked = []
    for offset in (6, 7, 8):
        partition = offset_commit.Partition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topics = [offset_commit.Topic(name="orders", partitions=[partition])]
        request = offset_commit.OffsetCommitRequest(group_id="g", topics=topics)
        asked.append(harness.hand_in("offset_commit", request, 8))
    records = recorded(harness)
    assert all(one.is_answered for one in asked)
    assert [(record.old_offset, record.new_offset) for record in records] == [
        (5, 6),
        (6, 7),
        (7, 8),
    ]


# -- who waits for it ------------------------------------------------------------------------


def test_a_change_by_hand_is_answered_when_it_is_recorded(harness: CoordinatorHarness) -> None:
    """A coordinator that is killed then has lost no record of what it acknowledged."""
    harness.audit.takes_s = 0.001
    emptied(harness, 5, 6)
    ask: list[Callable[[], Asked]] = [
        lambda: harness.commit(1, caller=TOOL),
        lambda: forget(harness, 1),
        lambda: delete(harness),
    ]
    for number, change in enumerate(ask):
        asked = change()
        assert not asked.is_answered
        assert len(harness.audit.records) == number
        while not asked.is_answered:
            harness.wait(0.0001)
        assert len(harness.audit.records) == number + 1


def test_what_changes_nothing_or_is_no_change_by_hand_waits_for_nothing(
    harness: CoordinatorHarness,
) -> None:
    harness.audit.is_away = True
    assert harness.commit(1, group=ONLY_OFFSETS).is_answered
    emptied(harness, 5)
    assert harness.commit(5).is_answered
    assert forget(harness, 3).is_answered


def test_a_member_does_not_wait_for_the_history_of_every_commit(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(history_enable=True)
    harness.audit.is_away = True
    assert harness.commit(1, group=ONLY_OFFSETS).is_answered


def test_while_the_audit_topic_is_away_one_answer_is_late_and_no_other(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    emptied(harness, 5)
    harness.audit.is_away = True
    first = harness.commit(1)
    harness.wait(audit_trail.HELD_S - 0.1)
    assert not first.is_answered
    harness.wait(0.2)
    assert first.is_answered
    assert "the audit topic cannot be written" in caplog.text
    assert forget(harness, 0).is_answered
    assert recorded(harness) == []
    assert harness.audit.refused > 1
    harness.audit.is_away = False
    harness.wait(5)
    assert moves(harness.audit.records) == [
        ("commit", "orders", 0, 5, 1),
        ("forget", "orders", 0, 1, None),
    ]
    harness.audit.is_away = True
    again = harness.commit(2, caller=TOOL)
    assert not again.is_answered, "the topic was there in between"


def test_a_consumer_without_membership_of_a_group_that_had_members_waits_once(
    harness: CoordinatorHarness,
) -> None:
    """It commits from outside all the time: recorded, but neither it nor its connection waits."""
    emptied(harness, 5)
    harness.audit.takes_s = 1
    first = harness.commit(6)
    assert not first.is_answered
    harness.wait(2)
    assert first.is_answered
    for offset in (7, 8):
        assert harness.commit(offset).is_answered
    harness.wait(5)
    assert [record.new_offset for record in harness.audit.records] == [6, 7, 8]
    assert all(record.change for record in harness.audit.records)
    other = replace(CALLER, client_id="other")
    assert not harness.commit(9, caller=other).is_answered, "another connection"
    harness.wait(audit_trail.OUTSIDE_S)
    assert not harness.commit(10).is_answered, "long after its last one"
    harness.wait(2)
    for _ in range(2):
        assert not harness.commit(harness.committed() + 1, caller=TOOL).is_answered, (
            "a tool always waits"
        )
        harness.wait(2)


def test_of_few_groups_is_remembered_that_a_connection_commits_from_outside(
    harness: CoordinatorHarness,
) -> None:
    caller, trail = replace(CALLER), harness.coordinator.audit_trail
    for number in range(100):
        assert not trail._is_repeated_commit(caller, f"g{number}")
        assert len(caller.outside) <= audit_trail.OUTSIDE_GROUPS_MAX
    assert trail._is_repeated_commit(caller, "g99")
    assert not trail._is_repeated_commit(caller, "g1")


def test_when_the_audit_topic_is_known_to_be_away_all_are_answered(
    harness: CoordinatorHarness,
) -> None:
    emptied(harness, 5)
    harness.audit.is_away = True
    first = harness.commit(1, caller=TOOL)
    harness.wait(audit_trail.HELD_S - 0.1)
    later = [harness.commit(offset, caller=TOOL) for offset in (2, 3)]
    assert not any(request.is_answered for request in (first, *later))
    harness.wait(0.2)
    assert all(request.is_answered for request in (first, *later))
    harness.audit.is_away = False
    harness.wait(10)
    assert [record.new_offset for record in harness.audit.records] == [1, 2, 3]


def test_a_partition_of_the_audit_topic_that_is_away_holds_up_no_other(
    harness: CoordinatorHarness,
) -> None:
    harness.audit.away_keys = {b"a"}
    first = harness.commit(1, group="a", caller=TOOL)
    other = harness.commit(1, group="b", caller=TOOL)
    harness.wait(2 * audit_queue.RETRY_S)
    assert other.is_answered
    assert not first.is_answered
    second = harness.commit(2, group="a", caller=TOOL)
    harness.wait(audit_trail.HELD_S + 0.1)
    assert first.is_answered
    assert second.is_answered
    harness.commit(2, group="b", caller=TOOL)
    harness.wait(1)
    assert [(record.group, record.new_offset) for record in harness.audit.records] == [
        ("b", 1),
        ("b", 2),
    ]
    harness.audit.away_keys = set()
    harness.wait(2 * audit_queue.RETRY_S_MAX)
    assert [record.new_offset for record in harness.audit.records if record.group == "a"] == [1, 2]
    assert not harness.coordinator.audit_trail.is_behind


def test_changes_by_hand_are_recorded_before_the_commits_of_others(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    """Not before those of their own group: these keep their order."""
    harness = make_harness(history_enable=True)
    harness.audit.takes_s = 1
    harness.commit(1, group="first")
    harness.wait(0.1)  # that one is being written
    for number in range(2 * audit_queue.AT_ONCE):
        harness.commit(number, group=f"app-{number}")
    harness.commit(1, group="g")
    asked = harness.commit(2, group="g", caller=TOOL)
    harness.wait(2)
    assert asked.is_answered
    records = harness.audit.records
    assert [(record.group, record.new_offset) for record in records[1:3]] == [("g", 1), ("g", 2)]
    harness.wait(5)
    assert len(harness.audit.records) == 2 * audit_queue.AT_ONCE + 3


def test_who_was_answered_is_forgotten_while_the_record_waits(harness: CoordinatorHarness) -> None:
    emptied(harness, 5)
    harness.audit.is_away = True
    asked = harness.commit(1, caller=TOOL)
    known = weakref.ref(asked)
    harness.wait(audit_trail.HELD_S + 1)
    assert asked.is_answered
    del asked
    assert known() is None
    assert harness.coordinator.audit_trail._accepted > harness.coordinator.audit_trail.written


def test_an_answer_that_fails_does_not_end_the_trail(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.audit.takes_s = 0.1
    asked = harness.commit(1, caller=TOOL)
    asked.answers.append("an answer that makes the next one fail")
    harness.wait(1)
    assert "answer failed after its records" in caplog.text
    again = harness.commit(2, caller=TOOL)
    harness.wait(1)
    assert again.is_answered


def test_a_request_that_deletes_more_than_there_is_room_for_loses_no_record(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_trail, "WAITING_BYTES_MAX", 10 * audit_trail.CHANGE_BYTES)
    monkeypatch.setattr(audit_trail, "NOTED_AT_ONCE_BYTES", 5 * audit_trail.CHANGE_BYTES)
    names = [f"app-{number}" for number in range(20)]
    for name in names:
        for index in range(4):
            harness.commit(5, group=name, index=index)
    asked = harness.hand_in(
        "delete_groups", delete_groups.DeleteGroupsRequest(groups_names=names), 2
    )
    harness.turn(3)
    assert not asked.is_answered
    records = recorded(harness)
    assert asked.is_answered
    assert len(records) == 80
    assert {record.group for record in records} == set(names)
    assert harness.coordinator.audit_trail.lost == 0


def test_what_is_deleted_and_waits_to_be_noted_is_bounded(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_trail, "REMOVED_MAX", 3)
    for index in range(4):
        harness.commit(5, group=ONLY_OFFSETS, index=index)
    assert delete(harness, ONLY_OFFSETS).is_answered
    assert recorded(harness) == []
    assert harness.coordinator.audit_trail.lost == 4


def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_trail, "WAITING_BYTES_MAX", 3 * audit_trail.CHANGE_BYTES)
    emptied(harness, 100)
    harness.audit.is_away = True
    asked = [harness.commit(offset) for offset in range(10)]
    harness.wait(audit_trail.HELD_S + 1)
    assert all(request.is_answered for request in asked)
    trail = harness.coordinator.audit_trail
    assert trail.lost == 7
    harness.audit.is_away = False
    harness.wait(audit_queue.RETRY_S_MAX)
    assert len(recorded(harness)) == 3
    assert "lost audit records, too many at once records=7" in caplog.text
    harness.commit(77)
    assert recorded(harness)[-1].new_offset == 77, "there is room again"
    assert trail.written == 4


def test_a_stop_in_order_waits_for_what_is_not_written_yet(harness: CoordinatorHarness) -> None:
    emptied(harness, 5)
    harness.commit(1)
    harness.loop.run_until_complete(harness.coordinator.save())
    assert len(harness.audit.records) == 1


def test_a_stop_in_order_does_not_wait_for_ever(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    emptied(harness, 5)
    harness.audit.is_away = True
    harness.commit(1)
    began = harness.loop.time()
    harness.loop.run_until_complete(harness.coordinator.audit_trail.drain())
    assert harness.loop.time() - began == pytest.approx(audit_trail.DRAIN_S)
    assert "stopped with audit records to write" in caplog.text


def test_a_coordinator_without_an_audit_log_records_nothing(harness: CoordinatorHarness) -> None:
    trail = audit_trail.AuditTrail(
        None, harness.coordinator.config, harness.loop, harness.loop.wall_ms, random.Random(1)
    )
    assert not trail.is_enabled
    emptied(harness, 5)
    assert not trail.is_by_hand(TOOL, harness.group(), "", -1)


def test_a_record_outlives_the_resignation_of_its_coordinator(harness: CoordinatorHarness) -> None:
    """The commit is in the log: its next coordinator serves it."""
    emptied(harness, 5)
    harness.log.is_replicated = False
    asked = harness.commit(1)
    harness.coordinator.on_resigned(partition_of("g"), 1)
    harness.log.replicate(partition_of("g"))
    assert moves(recorded(harness)) == [("commit", "orders", 0, 5, 1)]
    assert asked.is_answered
