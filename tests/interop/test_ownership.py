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
