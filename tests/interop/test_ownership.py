"""The checker of ownership finds what it is there for (docs/spec/consumer-groups.md §2.1)."""

from __future__ import annotations

from barnabas.client.topology import TopicPartition
from tests.harness.ownership import Double, Ownership

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_that_is_taken_before_it_was_given_is_found() -> None:
    ownership = Ownership()
    ownership.took("a", [P, Q], 1.0)
    ownership.took("b", [P], 2.0)
    ownership.gave("a", [P], 3.0)
    assert ownership.doubles() == [Double(P, "a", "b", 2.0)]


def test_a_partition_that_two_still_have_is_found() -> None:
    ownership = Ownership()
    ownership.took("a", [P], 1.0)
    ownership.took("b", [P], 2.0)
    assert ownership.doubles() == [Double(P, "a", "b", 2.0)]


def test_a_partition_that_goes_from_one_to_the_next_is_not() -> None:
    ownership = Ownership()
    ownership.took("a", [P, Q], 1.0)
    ownership.gave("a", [P], 2.0)
    ownership.took("b", [P], 2.0)
    ownership.took("b", [P], 2.5)
    ownership.gave("b", [P], 3.0)
    ownership.took("a", [P], 3.5)
    assert ownership.doubles() == []
    assert ownership.owners() == {P: "a", Q: "a"}


def test_who_was_fenced_had_nothing_for_sure() -> None:
    ownership = Ownership()
    ownership.took("a", [P], 1.0)
    ownership.took("b", [P], 2.0)
    ownership.lost("a", [P], 3.0)
    ownership.died("b", 4.0)
    ownership.took("a", [P], 4.0)
    assert ownership.doubles() == []


def test_who_is_lost_had_it_for_sure_when_it_sent_the_last_commit_that_was_taken() -> None:
    ownership = Ownership()
    ownership.took("a", [P, Q], 1.0)
    ownership.took("b", [P, Q], 2.0)
    ownership.proved("a", [P], 2.5)
    ownership.lost("a", [P, Q], 3.0)
    ownership.gave("b", [P, Q], 4.0)
    assert ownership.doubles() == [Double(P, "a", "b", 2.0)]


def test_who_was_killed_had_it_for_sure_when_it_sent_the_last_commit_that_was_taken() -> None:
    ownership = Ownership()
    ownership.took("a", [P], 1.0)
    ownership.proved("a", [P], 2.5)
    ownership.proved("a", [P], 1.5)
    ownership.died("a", 9.0)
    ownership.took("b", [P], 2.4)
    assert ownership.doubles() == [Double(P, "a", "b", 2.4)]


def test_what_a_frozen_member_gives_up_counts_only_as_far_as_it_is_proved() -> None:
    ownership = Ownership()
    ownership.took("a", [P, Q], 1.0)
    ownership.proved("a", [P, Q], 1.5)
    ownership.doubt("a", 2.0)
    ownership.took("b", [P, Q], 8.0)
    ownership.proved("a", [Q], 9.0)
    ownership.gave("a", [P, Q], 10.0)
    assert ownership.doubles() == [Double(Q, "a", "b", 8.0)]


def test_a_record_that_is_not_the_next_one_is_found_and_so_is_one_of_another_s_partition() -> None:
    ownership = Ownership()
    ownership.took("a", [P], 1.0)
    for offset in (5, 6, 8):
        ownership.read("a", P, offset, 2.0)
    assert ownership.leaps == [f"a read {P} at 8, not 7"]
    ownership.gave("a", [P], 3.0)
    ownership.read("a", P, 9, 4.0)
    assert ownership.strays == [f"a read {P} at 9 without having it"]
