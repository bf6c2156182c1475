"""The history of offset changes: what is recorded, and what never.

Source: docs/spec/coordinator.md §3.8.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from barnabas.coordinator import audit, audit_queue
from barnabas.coordinator.ports import Caller
from barnabas.protocol.audit_topic import AuditRecord, tool_client_id
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_groups, offset_commit, offset_delete
from tests.coordinator.rig import CALLER, Asked, Rig, partition_of

TOOL = Caller(
    client_id=tool_client_id("5f0c", "reset --to-offset 3: bug 12"),
    host="10.0.0.9",
    principal="User:alice",
)
ONLY_OFFSETS = "offsets-only"


def recorded(rig: Rig) -> list[AuditRecord]:
    """What is written by the time that everything noted is."""
    rig.wait(1)
    return rig.audit.records


def moves(records: Sequence[AuditRecord]) -> list[tuple[str, str, int, int | None, int | None]]:
    return [
        (each.action, each.topic, each.partition, each.old_offset, each.new_offset)
        for each in records
    ]


def emptied(rig: Rig, *offsets: int) -> None:
    """A group that has had a member, which committed ``offsets`` of orders."""
    (member,) = rig.stable()
    for index, offset in enumerate(offsets):
        rig.commit(offset, index=index, member_id=member, generation_id_or_member_epoch=1)
    rig.leave(member)


def forget(rig: Rig, *indexes: int, caller: Caller = CALLER) -> Asked:
    partitions = [offset_delete.Partition(partition_index=index) for index in indexes]
    topics = [offset_delete.Topic(name="orders", partitions=partitions)]
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=topics)
    return rig.ask("offset_delete", request, 0, caller=caller)


def delete(rig: Rig, group: str = "g", caller: Caller = CALLER) -> Asked:
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])
    return rig.ask("delete_groups", request, 2, caller=caller)


# -- C3.10 -----------------------------------------------------------------------------------


def test_an_ordinary_commit_leaves_no_audit_record(rig: Rig) -> None:
    emptied(rig, 5)
    assert recorded(rig) == []


def test_an_administrative_reset_leaves_one_audit_record_for_each_changed_partition(
    rig: Rig,
) -> None:
    emptied(rig, 5, 6, 7)
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
    rig.ask("offset_commit", request, 8, caller=TOOL)
    records = recorded(rig)
    assert moves(records) == [
        ("commit", "orders", 0, 5, 1),
        ("commit", "orders", 2, 7, 9),
        ("commit", "orders", 3, None, 4),
    ]
    assert {(each.change, each.reason) for each in records} == {
        ("5f0c", "reset --to-offset 3: bug 12")
    }
    assert {(each.principal, each.host, each.client_id) for each in records} == {
        ("User:alice", "10.0.0.9", TOOL.client_id)
    }
    assert {key for key, _ in rig.audit.entries} == {b"g"}


# -- what is recorded ------------------------------------------------------------------------


def test_a_commit_from_outside_a_group_that_has_had_members_is_recorded(rig: Rig) -> None:
    emptied(rig, 5)
    rig.commit(2, metadata="by hand")
    (record,) = recorded(rig)
    assert moves([record]) == [("commit", "orders", 0, 5, 2)]
    assert (record.old_metadata, record.new_metadata) == ("", "by hand")
    assert record.change, "it has a name of its own"
    assert record.reason == ""


def test_a_group_has_had_members_also_after_its_coordinator_moved(rig: Rig) -> None:
    emptied(rig, 5)
    rig.reload()
    rig.commit(2)
    assert moves(recorded(rig)) == [("commit", "orders", 0, 5, 2)]


def test_a_commit_of_a_simple_consumer_is_not_recorded(rig: Rig) -> None:
    rig.commit(1, group=ONLY_OFFSETS)
    rig.commit(2, group=ONLY_OFFSETS)
    assert recorded(rig) == []


def test_what_our_tools_commit_is_recorded_for_any_group(rig: Rig) -> None:
    rig.commit(1, group=ONLY_OFFSETS)
    rig.commit(2, group=ONLY_OFFSETS, caller=TOOL)
    assert moves(recorded(rig)) == [("commit", "orders", 0, 1, 2)]


def test_a_tool_that_changes_nothing_leaves_no_record(rig: Rig) -> None:
    rig.commit(1, group=ONLY_OFFSETS)
    rig.commit(1, group=ONLY_OFFSETS, caller=TOOL)
    assert recorded(rig) == []


def test_forgotten_offsets_are_recorded(rig: Rig) -> None:
    emptied(rig, 5, 6)
    forget(rig, 1, 3, caller=TOOL)
    assert moves(recorded(rig)) == [("forget", "orders", 1, 6, None)]


def test_offsets_of_a_deleted_group_are_recorded(rig: Rig) -> None:
    emptied(rig, 5, 6)
    delete(rig)
    records = recorded(rig)
    assert moves(records) == [("delete", "orders", 0, 5, None), ("delete", "orders", 1, 6, None)]
    assert len({each.change for each in records}) == 1


def test_groups_deleted_beside_one_whose_tombstones_fail_are_recorded(rig: Rig) -> None:
    """Each answer is a success: the tombstones of the others are in the log."""
    away, others = "g", ["g0", "g1", "g2", "g3", "g4"]
    kept = [each for each in others if partition_of(each) != partition_of(away)]
    assert kept
    for group in (away, *kept):
        rig.commit(5, group=group)
    partition = rig.log.partition(partition_of(away))
    partition.leader_epoch = 7  # an append of this term ends with NOT_LEADER_OR_FOLLOWER
    request = delete_groups.DeleteGroupsRequest(groups_names=[away, *kept])
    asked = rig.ask("delete_groups", request, 2)
    assert {each.error_code for each in asked.answer.results} == {ErrorCode.NONE}
    records = recorded(rig)
    assert sorted(each.group for each in records) == kept
    assert len({each.change for each in records}) == 1, "one request"


def test_a_group_whose_tombstones_timed_out_is_recorded(rig: Rig) -> None:
    """They are in the leader's log, and its answer is a success."""
    rig.commit(5, group=ONLY_OFFSETS)
    rig.log.append_fails_with = ErrorCode.REQUEST_TIMED_OUT
    asked = delete(rig, ONLY_OFFSETS)
    assert asked.answer.results[0].error_code == ErrorCode.NONE
    assert moves(recorded(rig)) == [("delete", "orders", 0, 5, None)]


def test_a_reset_that_is_repeated_at_the_next_coordinator_is_recorded(rig: Rig) -> None:
    """The one before was killed between the commit and its record: nothing differs any more."""
    emptied(rig, 500)
    rig.audit.is_away = True
    asked = rig.commit(0)
    assert not asked.is_answered
    after = Rig(loop=rig.loop, log=rig.log, is_elected=False)
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


def test_what_is_refused_leaves_no_record(rig: Rig) -> None:
    rig.stable()
    assert rig.commit(1).answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    delete(rig)
    forget(rig, 0)
    assert recorded(rig) == []


def test_a_commit_that_the_log_refused_leaves_no_record(rig: Rig) -> None:
    emptied(rig, 5)
    rig.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.commit(1)
    rig.log.append_fails_with = None
    assert recorded(rig) == []


def test_deleted_topics_and_expired_offsets_leave_no_record(rig: Rig) -> None:
    emptied(rig, 5)
    rig.coordinator.topics_deleted(["orders"])
    assert recorded(rig) == []


def test_every_commit_is_recorded_when_the_history_is_enabled(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(history_enable=True)
    emptied(rig, 5)
    rig.commit(1, group=ONLY_OFFSETS)
    rig.commit(1, group=ONLY_OFFSETS)
    records = recorded(rig)
    assert moves(records) == [
        ("commit", "orders", 0, None, 5),
        ("commit", "orders", 0, None, 1),
        ("commit", "orders", 0, 1, 1),
    ]
    assert {each.change for each in records} == {""}, "nothing that was done by hand"


def test_pipelined_commits_are_recorded_one_by_one_in_their_order(rig: Rig) -> None:
    emptied(rig, 5)
    asked = []
    for offset in (6, 7, 8):
        partition = offset_commit.Partition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topics = [offset_commit.Topic(name="orders", partitions=[partition])]
        request = offset_commit.OffsetCommitRequest(group_id="g", topics=topics)
        asked.append(rig.hand_in("offset_commit", request, 8))
    records = recorded(rig)
    assert all(one.is_answered for one in asked)
    assert [(each.old_offset, each.new_offset) for each in records] == [
        (5, 6),
        (6, 7),
        (7, 8),
    ]


# -- who waits for it ------------------------------------------------------------------------


def test_a_change_by_hand_is_answered_when_it_is_recorded(rig: Rig) -> None:
    """A coordinator that is killed then has lost no record of what it acknowledged."""
    rig.audit.takes_s = 0.001
    emptied(rig, 5, 6)
    ask: list[Callable[[], Asked]] = [
        lambda: rig.commit(1, caller=TOOL),
        lambda: forget(rig, 1),
        lambda: delete(rig),
    ]
    for number, change in enumerate(ask):
        asked = change()
        assert not asked.is_answered
        assert len(rig.audit.records) == number
        while not asked.is_answered:
            rig.wait(0.0001)
        assert len(rig.audit.records) == number + 1


def test_what_changes_nothing_or_is_no_change_by_hand_waits_for_nothing(rig: Rig) -> None:
    rig.audit.is_away = True
    assert rig.commit(1, group=ONLY_OFFSETS).is_answered
    emptied(rig, 5)
    assert rig.commit(5).is_answered
    assert forget(rig, 3).is_answered


def test_a_member_does_not_wait_for_the_history_of_every_commit(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(history_enable=True)
    rig.audit.is_away = True
    assert rig.commit(1, group=ONLY_OFFSETS).is_answered


def test_while_the_audit_topic_is_away_one_answer_is_late_and_no_other(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    emptied(rig, 5)
    rig.audit.is_away = True
    first = rig.commit(1)
    rig.wait(audit.HELD_S - 0.1)
    assert not first.is_answered
    rig.wait(0.2)
    assert first.is_answered
    assert "the audit topic cannot be written" in caplog.text
    assert forget(rig, 0).is_answered
    assert recorded(rig) == []
    assert rig.audit.refused > 1
    rig.audit.is_away = False
    rig.wait(5)
    assert moves(rig.audit.records) == [
        ("commit", "orders", 0, 5, 1),
        ("forget", "orders", 0, 1, None),
    ]
    rig.audit.is_away = True
    again = rig.commit(2, caller=TOOL)
    assert not again.is_answered, "the topic was there in between"


def test_a_consumer_without_membership_of_a_group_that_had_members_waits_once(rig: Rig) -> None:
    """It commits from outside all the time: recorded, but neither it nor its connection waits."""
    emptied(rig, 5)
    rig.audit.takes_s = 1
    first = rig.commit(6)
    assert not first.is_answered
    rig.wait(2)
    assert first.is_answered
    for offset in (7, 8):
        assert rig.commit(offset).is_answered
    rig.wait(5)
    assert [each.new_offset for each in rig.audit.records] == [6, 7, 8]
    assert all(each.change for each in rig.audit.records)
    other = replace(CALLER, client_id="other")
    assert not rig.commit(9, caller=other).is_answered, "another connection"
    rig.wait(audit.OUTSIDE_S)
    assert not rig.commit(10).is_answered, "long after its last one"
    rig.wait(2)
    for _ in range(2):
        assert not rig.commit(rig.committed() + 1, caller=TOOL).is_answered, "a tool always waits"
        rig.wait(2)


def test_of_few_groups_is_remembered_that_a_connection_commits_from_outside(rig: Rig) -> None:
    caller, trail = replace(CALLER), rig.coordinator.trail
    for number in range(100):
        assert not trail._commits_again(caller, f"g{number}")
        assert len(caller.outside) <= audit.OUTSIDE_GROUPS_MAX
    assert trail._commits_again(caller, "g99")
    assert not trail._commits_again(caller, "g1")


def test_when_the_audit_topic_is_known_to_be_away_all_are_answered(rig: Rig) -> None:
    emptied(rig, 5)
    rig.audit.is_away = True
    first = rig.commit(1, caller=TOOL)
    rig.wait(audit.HELD_S - 0.1)
    later = [rig.commit(offset, caller=TOOL) for offset in (2, 3)]
    assert not any(each.is_answered for each in (first, *later))
    rig.wait(0.2)
    assert all(each.is_answered for each in (first, *later))
    rig.audit.is_away = False
    rig.wait(10)
    assert [each.new_offset for each in rig.audit.records] == [1, 2, 3]


def test_a_partition_of_the_audit_topic_that_is_away_holds_up_no_other(rig: Rig) -> None:
    rig.audit.away_keys = {b"a"}
    first = rig.commit(1, group="a", caller=TOOL)
    other = rig.commit(1, group="b", caller=TOOL)
    rig.wait(2 * audit_queue.RETRY_S)
    assert other.is_answered
    assert not first.is_answered
    second = rig.commit(2, group="a", caller=TOOL)
    rig.wait(audit.HELD_S + 0.1)
    assert first.is_answered
    assert second.is_answered
    rig.commit(2, group="b", caller=TOOL)
    rig.wait(1)
    assert [(each.group, each.new_offset) for each in rig.audit.records] == [("b", 1), ("b", 2)]
    rig.audit.away_keys = set()
    rig.wait(2 * audit_queue.RETRY_S_MAX)
    assert [each.new_offset for each in rig.audit.records if each.group == "a"] == [1, 2]
    assert not rig.coordinator.trail.is_behind


def test_changes_by_hand_are_recorded_before_the_commits_of_others(
    make_rig: Callable[..., Rig],
) -> None:
    """Not before those of their own group: these keep their order."""
    rig = make_rig(history_enable=True)
    rig.audit.takes_s = 1
    rig.commit(1, group="first")
    rig.wait(0.1)  # that one is being written
    for number in range(2 * audit_queue.AT_ONCE):
        rig.commit(number, group=f"app-{number}")
    rig.commit(1, group="g")
    asked = rig.commit(2, group="g", caller=TOOL)
    rig.wait(2)
    assert asked.is_answered
    records = rig.audit.records
    assert [(each.group, each.new_offset) for each in records[1:3]] == [("g", 1), ("g", 2)]
    rig.wait(5)
    assert len(rig.audit.records) == 2 * audit_queue.AT_ONCE + 3


def test_who_was_answered_is_forgotten_while_the_record_waits(rig: Rig) -> None:
    emptied(rig, 5)
    rig.audit.is_away = True
    asked = rig.commit(1, caller=TOOL)
    known = weakref.ref(asked)
    rig.wait(audit.HELD_S + 1)
    assert asked.is_answered
    del asked
    assert known() is None
    assert rig.coordinator.trail._noted > rig.coordinator.trail.written


def test_an_answer_that_fails_does_not_end_the_trail(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.audit.takes_s = 0.1
    asked = rig.commit(1, caller=TOOL)
    asked.answers.append("an answer that makes the next one fail")
    rig.wait(1)
    assert "answer failed after its records" in caplog.text
    again = rig.commit(2, caller=TOOL)
    rig.wait(1)
    assert again.is_answered


def test_a_request_that_deletes_more_than_there_is_room_for_loses_no_record(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "WAITING_BYTES_MAX", 10 * audit.CHANGE_BYTES)
    monkeypatch.setattr(audit, "NOTED_AT_ONCE_BYTES", 5 * audit.CHANGE_BYTES)
    names = [f"app-{number}" for number in range(20)]
    for name in names:
        for index in range(4):
            rig.commit(5, group=name, index=index)
    asked = rig.hand_in("delete_groups", delete_groups.DeleteGroupsRequest(groups_names=names), 2)
    rig.turn(3)
    assert not asked.is_answered
    records = recorded(rig)
    assert asked.is_answered
    assert len(records) == 80
    assert {each.group for each in records} == set(names)
    assert rig.coordinator.trail.lost == 0


def test_what_is_deleted_and_waits_to_be_noted_is_bounded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "REMOVED_MAX", 3)
    for index in range(4):
        rig.commit(5, group=ONLY_OFFSETS, index=index)
    assert delete(rig, ONLY_OFFSETS).is_answered
    assert recorded(rig) == []
    assert rig.coordinator.trail.lost == 4


def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "WAITING_BYTES_MAX", 3 * audit.CHANGE_BYTES)
    emptied(rig, 100)
    rig.audit.is_away = True
    asked = [rig.commit(offset) for offset in range(10)]
    rig.wait(audit.HELD_S + 1)
    assert all(each.is_answered for each in asked)
    trail = rig.coordinator.trail
    assert trail.lost == 7
    rig.audit.is_away = False
    rig.wait(audit_queue.RETRY_S_MAX)
    assert len(recorded(rig)) == 3
    assert "lost audit records, too many at once records=7" in caplog.text
    rig.commit(77)
    assert recorded(rig)[-1].new_offset == 77, "there is room again"
    assert trail.written == 4


def test_a_stop_in_order_waits_for_what_is_not_written_yet(rig: Rig) -> None:
    emptied(rig, 5)
    rig.commit(1)
    rig.loop.run_until_complete(rig.coordinator.save())
    assert len(rig.audit.records) == 1


def test_a_stop_in_order_does_not_wait_for_ever(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    emptied(rig, 5)
    rig.audit.is_away = True
    rig.commit(1)
    began = rig.loop.time()
    rig.loop.run_until_complete(rig.coordinator.trail.drain())
    assert rig.loop.time() - began == pytest.approx(audit.DRAIN_S)
    assert "stopped with audit records to write" in caplog.text


def test_a_coordinator_without_an_audit_log_records_nothing(rig: Rig) -> None:
    trail = audit.Trail(None, rig.coordinator.config, rig.loop, rig.loop.wall_ms, random.Random(1))
    assert not trail.is_kept
    emptied(rig, 5)
    assert not trail.is_by_hand(TOOL, rig.group(), "", -1)


def test_a_record_outlives_the_resignation_of_its_coordinator(rig: Rig) -> None:
    """The commit is in the log: its next coordinator serves it."""
    emptied(rig, 5)
    rig.log.is_replicated = False
    asked = rig.commit(1)
    rig.coordinator.on_resigned(partition_of("g"), 1)
    rig.log.replicate(partition_of("g"))
    assert moves(recorded(rig)) == [("commit", "orders", 0, 5, 1)]
    assert asked.is_answered
