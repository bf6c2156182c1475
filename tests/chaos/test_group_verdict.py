"""What members of a group read and committed is judged: each mistake is found, and nothing else.

Source: docs/chaos.md (owners); docs/spec/consumer-groups.md §5 (C58).
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.client.topology import TopicPartition
from tests.harness.group_verdict import Commit, passed_over, read_again
from tests.harness.ownership import Ownership
from tests.harness.protocol_members import Ledger

P = TopicPartition("t", 0)


def two_tenures(first: int) -> Ownership:
    """a has it until 3, b from 4 on, where it reads from ``first`` at 5."""
    ownership = Ownership()
    ownership.took("a", [P], 1.0)
    ownership.read("a", P, 0, 2.0)
    ownership.gave("a", [P], 3.0)
    ownership.took("b", [P], 4.0)
    ownership.read("b", P, first, 5.0)
    return ownership


COMMITS = [Commit("a", P, 5, 2.0, 2.5), Commit("a", P, 9, 2.8, 4.5)]


@pytest.mark.parametrize("first", [5, 7, 9])
def test_who_comes_next_begins_where_it_may_be_committed(first: int) -> None:
    assert read_again(two_tenures(first), COMMITS) == []
    assert passed_over(two_tenures(first), COMMITS) == []


def test_what_was_committed_before_is_not_read_again() -> None:
    assert len(read_again(two_tenures(4), COMMITS)) == 1
    assert read_again(two_tenures(4), [Commit("a", P, 5, 2.0)]) == []


def test_what_nobody_began_to_commit_is_not_passed_over() -> None:
    assert len(passed_over(two_tenures(10), COMMITS)) == 1
    assert passed_over(two_tenures(10), [*COMMITS, Commit("b", P, 10, 4.9)]) == []


def told(ledger: Ledger, owner: str, event: str, at: float, **more: Any) -> None:
    ledger.note(owner, {"event": event, "at": at, **more})


def handed_over(*, begins: float, first: int) -> Ledger:
    """a commits 2 and gives up at 3; b begins then and there."""
    ledger = Ledger("t")
    told(ledger, "a", "assigned", 1.0, partitions=[0])
    told(ledger, "a", "read", 1.1, records=[[0, 0], [0, 1]])
    told(ledger, "a", "committing", 1.2, ends=[[0, 2]])
    told(ledger, "a", "committed", 1.3, partitions=[0])
    told(ledger, "a", "revoking", 2.0)
    told(ledger, "a", "revoked", 3.0, partitions=[0])
    told(ledger, "b", "assigned", begins, partitions=[0])
    told(ledger, "b", "read", begins + 0.1, records=[[0, first]])
    return ledger


def test_a_partition_that_is_handed_over_in_order_is_no_finding() -> None:
    assert handed_over(begins=3.5, first=2).findings() == []


@pytest.mark.parametrize(("begins", "first"), [(2.5, 2), (3.5, 1), (3.5, 3)])
def test_each_mistake_of_a_hand_over_is_one_finding(begins: float, first: int) -> None:
    assert len(handed_over(begins=begins, first=first).findings()) == 1


def test_who_takes_longer_to_give_up_than_it_may_is_fenced_meanwhile() -> None:
    ledger = handed_over(begins=2.5, first=2)
    late = Ledger("t")
    late.rebalance_s["a"] = 0.4
    for owner, event, at, more in (
        ("a", "assigned", 1.0, {"partitions": [0]}),
        ("a", "revoking", 2.0, {}),
        ("b", "assigned", 2.5, {"partitions": [0]}),
        ("a", "revoked", 3.0, {"partitions": [0]}),
    ):
        told(late, owner, event, at, **more)
    assert ledger.findings() != []
    assert late.findings() == []


def test_a_commit_without_an_answer_is_one_that_may_have_happened() -> None:
    ledger = Ledger("t")
    told(ledger, "a", "assigned", 1.0, partitions=[0])
    told(ledger, "a", "committing", 2.0, ends=[[0, 7]])
    told(ledger, "a", "error", 3.0, text="timed out")
    told(ledger, "a", "committing", 4.0, ends=[[0, 8]])
    ledger.ended("a")
    assert [(one.offset, one.ended) for one in ledger.commits] == [(7, math.inf), (8, math.inf)]
