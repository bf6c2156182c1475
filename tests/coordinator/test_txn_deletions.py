"""Deleting, expiry and the audit trail of offsets inside transactions.

Source: docs/spec/transactions.md §4.6, check T4.6; docs/spec/coordinator.md §3.8.
"""

from __future__ import annotations

from barnabas.coordinator.offsets import TransactionalCommit
from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_groups,
    offset_delete,
)
from barnabas.protocol.offsets_topic import offset_key
from tests.coordinator.coordinator_harness import (
    CALLER,
    CODES,
    NONE,
    CoordinatorHarness,
    G,
    Make,
    codes_of,
    stable_codes,
)


def forget(harness: CoordinatorHarness, index: int = 0, group: str = "g") -> list[ErrorCode]:
    request = offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.Topic(
                name="orders", partitions=[offset_delete.Partition(partition_index=index)]
            )
        ],
    )
    return codes_of(harness.ask("offset_delete", request, 0))


def delete(harness: CoordinatorHarness) -> ErrorCode:
    request = delete_groups.DeleteGroupsRequest(groups_names=["g"])
    return CODES[harness.ask("delete_groups", request, 2).answer.results[0].error_code]


# -- deleting -------------------------------------------------------------------------------------


def test_a_staged_offset_that_was_deleted_does_not_come_back_with_the_marker(
    harness: CoordinatorHarness,
) -> None:
    """T4.6: neither here nor after a load."""
    harness.commit(1)
    harness.txn_commit(2)
    harness.txn_commit(3, index=1)
    assert forget(harness) == [NONE]
    assert forget(harness, 1) == [NONE]
    for index in (0, 1):
        tombstone = offset_key("g", "orders", index)
        assert [r.value for r in harness.log.records(G) if r.key == tombstone][-1] is None
    harness.reload()
    assert stable_codes(harness, 0, 1) == [NONE, NONE]
    harness.end_transaction()
    assert harness.committed() == -1
    harness.reload(2)
    assert harness.committed() == -1
    assert harness.committed(index=1) == -1


def test_a_staged_offset_of_a_deleted_topic_does_not_come_back(harness: CoordinatorHarness) -> None:
    harness.txn_commit(2)
    harness.txn_commit(5, topic="clicks")
    harness.coordinator.topics_deleted(["orders"])
    harness.turn()
    harness.end_transaction()
    assert harness.committed() == -1
    assert harness.committed(topic="clicks") == 5
    harness.reload()
    assert harness.committed() == -1
    assert harness.committed(topic="clicks") == 5


def test_an_offset_committed_anew_after_its_deletion_is_stable_after_a_load_too(
    harness: CoordinatorHarness,
) -> None:
    """The tombstone counts though a later record of its key follows."""
    harness.txn_commit(2)
    forget(harness)
    harness.commit(7)
    assert stable_codes(harness) == [NONE]
    harness.reload()
    assert stable_codes(harness) == [NONE]
    harness.end_transaction()
    assert harness.committed() == 7


def test_a_group_with_staged_offsets_is_not_deleted(harness: CoordinatorHarness) -> None:
    """docs/spec/transactions.md §4.6: Kafka deletes it, and the marker makes it again."""
    harness.txn_commit(2)
    assert delete(harness) is ErrorCode.NON_EMPTY_GROUP
    harness.end_transaction()
    assert harness.committed() == 2
    assert delete(harness) is NONE
    harness.txn_commit(2)
    harness.end_transaction(is_commit=False)
    assert delete(harness) is NONE


def test_a_group_with_staged_offsets_does_not_expire(make_harness: Make) -> None:
    """docs/spec/transactions.md §4.6: Kafka looks at plain pending commits only."""
    harness = make_harness(retention_min=1, retention_check_interval_ms=500)
    harness.commit(1)
    harness.txn_commit(2)
    harness.txn_commit(2, group="h")
    harness.wait(100)
    assert harness.committed() == 1
    assert "h" in harness.coordinator.registry.groups
    harness.end_transaction(is_commit=False)
    harness.end_transaction(is_commit=False, group="h")
    harness.wait(10)
    assert harness.committed() == -1
    assert not harness.coordinator.registry.groups


# -- the audit trail ------------------------------------------------------------------------------


def test_a_commit_in_a_transaction_is_recorded_when_the_transaction_commits(
    make_harness: Make,
) -> None:
    harness = make_harness(history_enable=True)
    caller = Caller("copier", "10.0.0.9", "User:copier")
    harness.commit(1, caller=caller)
    harness.wait(1)
    harness.audit.entries.clear()
    harness.txn_commit(2, caller=caller)
    harness.end_transaction(is_commit=False)
    harness.txn_commit(3, caller=caller)
    harness.turn(100)
    assert harness.audit.records == []
    harness.end_transaction()
    harness.wait(1)
    (record,) = harness.audit.records
    assert (record.principal, record.client_id, record.host) == (
        "User:copier",
        "copier",
        "10.0.0.9",
    )
    assert (record.old_offset, record.new_offset, record.change) == (1, 3, "")


def test_after_a_load_nobody_knows_who_committed_in_a_transaction(make_harness: Make) -> None:
    harness = make_harness(history_enable=True)
    harness.txn_commit(3)
    harness.reload()
    harness.end_transaction()
    harness.wait(1)
    (record,) = harness.audit.records
    assert (record.principal, record.client_id, record.host) == ("", "", "")
    assert (record.old_offset, record.new_offset) == (None, 3)


def test_an_ordinary_transaction_leaves_no_audit_record(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    harness.txn_commit(1, member_id=member, generation_id=harness.group().generation)
    harness.txn_commit(2, index=1, version=0)  # aiokafka: of a member, which cannot say so
    harness.end_transaction()
    harness.wait(1)
    assert harness.audit.records == []


def test_a_commit_from_outside_a_group_that_had_members_is_recorded(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable()
    harness.leave(member)
    harness.txn_commit(1)
    harness.end_transaction()
    harness.wait(1)
    (record,) = harness.audit.records
    assert (record.client_id, record.new_offset) == (CALLER.client_id, 1)
    assert record.change
    served = harness.group().offsets.committed["orders", 0]
    assert isinstance(served, TransactionalCommit)
    assert served.caller is None
