"""Three maps of one group: which value replaces which.

Source: docs/spec/coordinator.md §3.1, §3.2 and §3.6.
"""

from __future__ import annotations

from barnabas.coordinator.offsets import Commit, Offsets

TP = ("orders", 0)


def commit(offset: int, record_offset: int = -1) -> Commit:
    return Commit(offset, -1, "", 0, -1, record_offset)


def staged(offsets: Offsets, value: int) -> Commit:
    made = commit(value)
    offsets.stage(TP, made)
    return made


def test_a_settled_commit_is_served_and_no_longer_pending() -> None:
    offsets = Offsets()
    offsets.settle(TP, staged(offsets, 5), 10)
    assert offsets.committed[TP].offset == 5
    assert not offsets.pending


def test_completions_out_of_order_leave_the_later_record() -> None:
    offsets = Offsets()
    first, second = staged(offsets, 1), staged(offsets, 2)
    offsets.settle(TP, second, 11)
    offsets.settle(TP, first, 10)
    assert offsets.committed[TP] is second


def test_an_earlier_commit_is_served_while_a_later_one_is_still_pending() -> None:
    offsets = Offsets()
    first, second = staged(offsets, 1), staged(offsets, 2)
    offsets.settle(TP, first, 10)
    assert offsets.committed[TP] is first
    assert offsets.pending[TP] is second


def test_a_failed_commit_leaves_a_later_one_pending() -> None:
    offsets = Offsets()
    first, second = staged(offsets, 1), staged(offsets, 2)
    offsets.withdraw(TP, first)
    assert offsets.pending[TP] is second
    offsets.withdraw(TP, second)
    assert offsets.is_empty


def test_an_earlier_commit_is_served_although_a_later_one_failed_before_it_settled() -> None:
    offsets = Offsets()
    first, second, third = staged(offsets, 1), staged(offsets, 2), staged(offsets, 3)
    offsets.withdraw(TP, second)
    offsets.withdraw(TP, third)
    assert offsets.pending[TP] is first
    offsets.settle(TP, first, 10)
    assert offsets.committed[TP] is first
    assert not offsets.pending


def test_commits_that_follow_each_other_without_a_pause_do_not_pile_up() -> None:
    offsets = Offsets()
    last = staged(offsets, 0)
    for number in range(1, 100):
        following = staged(offsets, number)
        offsets.settle(TP, last, number)
        last = following
    assert last.before is not None
    assert last.before.before is None


def test_a_partition_forgotten_and_committed_anew_ignores_what_was_on_its_way() -> None:
    offsets = Offsets()
    first, second = staged(offsets, 1), staged(offsets, 2)
    offsets.forget(TP)
    third = staged(offsets, 3)
    offsets.settle(TP, first, 10)
    offsets.settle(TP, second, 11)
    assert not offsets.committed
    offsets.settle(TP, third, 12)
    assert offsets.committed[TP] is third


def test_a_plain_commit_stays_when_an_older_transactional_one_ends_later() -> None:
    offsets = Offsets()
    offsets.committed[TP] = commit(10, record_offset=10)
    offsets.put_staged(7, TP, commit(8, record_offset=8))
    assert offsets.is_unstable(TP)
    assert not offsets.end_transaction(7, is_committed=True, marker_offset=11)
    assert offsets.committed[TP].offset == 10
    assert not offsets.is_unstable(TP)


def test_an_aborted_transaction_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.put_staged(7, TP, commit(8, record_offset=8))
    assert not offsets.end_transaction(7, is_committed=False, marker_offset=11)
    assert offsets.is_empty


def test_forgetting_a_partition_leaves_no_trace_of_it_anywhere() -> None:
    offsets = Offsets()
    offsets.committed[TP] = commit(1, 1)
    made = staged(offsets, 2)
    offsets.put_staged(7, TP, commit(3, 3))
    offsets.old_keys.add(TP)
    assert offsets.of_topics({"orders"}) == [TP]
    offsets.forget(TP)
    offsets.settle(TP, made, 9)
    assert offsets.is_empty
    assert not offsets.old_keys
