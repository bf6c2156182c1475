"""The history of offset changes: what is recorded, and what never.

Source: docs/spec/coordinator.md §3.8.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from barnabas.coordinator import audit
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
    rig.wait(audit.RETRY_S_MAX)
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
