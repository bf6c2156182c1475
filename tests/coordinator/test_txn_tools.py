"""Tools of ours and open transactions: neither overwrites the other without a word.

Source: docs/groups.md; docs/spec/transactions.md §4.3 (a plain commit behind a staged one wins).
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.ports import Caller
from barnabas.protocol.audit_topic import tool_client_id
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_delete
from tests.coordinator.coordinator_harness import (
    CALLER,
    NONE,
    UNSTABLE,
    CoordinatorHarness,
    codes_of,
)

TOOL = Caller(tool_client_id("c1", "reset"), "10.0.0.9")


def commit_of(offsets: dict[int, int]) -> offset_commit.OffsetCommitRequest:
    partitions = [
        offset_commit.Partition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        for index, offset in offsets.items()
    ]
    return offset_commit.OffsetCommitRequest(
        group_id="g", topics=[offset_commit.Topic(name="orders", partitions=partitions)]
    )


def forget(harness: CoordinatorHarness, caller: Caller, *indexes: int) -> list[ErrorCode]:
    partitions = [offset_delete.Partition(partition_index=index) for index in indexes]
    request = offset_delete.OffsetDeleteRequest(
        group_id="g", topics=[offset_delete.Topic(name="orders", partitions=partitions)]
    )
    return codes_of(harness.ask("offset_delete", request, 0, caller=caller))


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_tool_is_refused_what_a_transaction_holds_until_it_ends(
    harness: CoordinatorHarness, is_commit: bool
) -> None:
    harness.commit(1)
    harness.txn_commit(5)
    asked = harness.ask("offset_commit", commit_of({0: 9}), 8, caller=TOOL)
    assert codes_of(asked) == [UNSTABLE]
    harness.end_transaction(is_commit=is_commit)
    assert harness.committed() == (5 if is_commit else 1)
    asked = harness.ask("offset_commit", commit_of({0: 9}), 8, caller=TOOL)
    assert codes_of(asked) == [NONE]
    assert harness.committed() == 9


def test_of_a_tools_request_the_partitions_outside_of_transactions_are_written(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(5, index=1)
    asked = harness.ask("offset_commit", commit_of({0: 9, 1: 9, 2: 8}), 8, caller=TOOL)
    assert codes_of(asked) == [NONE, UNSTABLE, NONE]
    assert [harness.committed(index=index) for index in range(3)] == [9, -1, 8]
    harness.record()
    noted = [(record.partition, record.new_offset) for record in harness.audit.records]
    assert sorted(noted) == [(0, 9), (2, 8)]
    harness.end_transaction()
    assert harness.committed(index=1) == 5
    harness.reload()
    assert [harness.committed(index=index) for index in range(3)] == [9, 5, 8]


def test_a_tools_request_of_nothing_else_is_answered_and_leaves_nothing_on_its_way(
    harness: CoordinatorHarness,
) -> None:
    harness.txn_commit(5)
    harness.txn_commit(5, index=1)
    asked = harness.ask("offset_commit", commit_of({0: 9, 1: 9}), 8, caller=TOOL)
    assert codes_of(asked) == [UNSTABLE, UNSTABLE]
    assert not harness.group().offsets.pending
    assert harness.audit.records == []


def test_other_clients_commit_as_at_kafka(harness: CoordinatorHarness) -> None:
    harness.txn_commit(5)
    assert codes_of(harness.commit(9)) == [NONE]
    harness.end_transaction()
    assert harness.committed() == 9


def test_a_tool_does_not_delete_what_a_transaction_holds(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.commit(1, index=1)
    harness.txn_commit(5)
    assert forget(harness, TOOL, 0, 1) == [UNSTABLE, NONE]
    assert harness.committed() == 1
    assert harness.committed(index=1) == -1
    assert forget(harness, CALLER, 0) == [NONE]
    harness.end_transaction()
    assert harness.committed() == -1
