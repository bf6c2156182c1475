"""Which partitions a group has, and which are in open transactions, against a plain look at all.

Source: docs/spec/coordinator.md §3.1; docs/spec/transactions.md §4.3 and §4.6.
"""

from __future__ import annotations

from typing import NoReturn

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.offsets import (
    Commit,
    Offsets,
    TopicPartition,
    TransactionalCommit,
)

TOPICS = ("bills", "orders")
ALL = [(topic, index) for topic in TOPICS for index in range(2)]
PARTITIONS = st.sampled_from(ALL)
PRODUCERS = st.sampled_from([7, 8, 9])


class Commits(RuleBasedStateMachine):
    """Offsets of one group: plain commits, open transactions, deletions."""

    @initialize()
    def begin(self) -> None:
        self.offsets = Offsets()
        self.end = 0
        """Of the log that all of them are in."""
        self.on_their_way: list[tuple[TopicPartition, Commit]] = []
        self.staged: list[tuple[int, TopicPartition, TransactionalCommit]] = []

    @rule(partition=PARTITIONS)
    def stage(self, partition: TopicPartition) -> None:
        commit = Commit(1, -1, "", 0, -1)
        self.offsets.stage(partition, commit)
        self.on_their_way.append((partition, commit))

    @rule(is_written=st.booleans())
    def decide(self, is_written: bool) -> None:
        if not self.on_their_way:
            return
        partition, commit = self.on_their_way.pop(0)
        if is_written:
            self.offsets.settle(partition, commit, self._next_offset())
        else:
            self.offsets.withdraw(partition, commit)

    @rule(producer=PRODUCERS, partition=PARTITIONS, is_replicated=st.booleans())
    def stage_in_transaction(
        self, producer: int, partition: TopicPartition, is_replicated: bool
    ) -> None:
        commit = TransactionalCommit(1, -1, "", 0, caller=None, change="")
        commit.record_offset = self._next_offset()
        high_watermark = self.end if is_replicated else 0
        self.offsets.stage_in_transaction(producer, partition, commit, high_watermark)
        self.staged.append((producer, partition, commit))

    @rule(producer=PRODUCERS, partition=PARTITIONS)
    def put_staged(self, producer: int, partition: TopicPartition) -> None:
        """As a load does."""
        self.offsets.put_staged(producer, partition, Commit(1, -1, "", 0, -1, self._next_offset()))

    @rule(producer=PRODUCERS, partition=PARTITIONS)
    def remove_staged(self, producer: int, partition: TopicPartition) -> None:
        """The same, of a tombstone in a transaction."""
        self.offsets.remove_staged(producer, partition)

    @rule(which=st.integers(0, 99))
    def withdraw_from_transaction(self, which: int) -> None:
        """Also one that is staged no more."""
        if self.staged:
            producer, partition, commit = self.staged.pop(which % len(self.staged))
            self.offsets.withdraw_from_transaction(producer, partition, commit)

    @rule(producer=PRODUCERS, is_committed=st.booleans(), before=st.integers(0, 3))
    def end_transaction(self, producer: int, is_committed: bool, before: int) -> None:
        """``before`` records of the next transaction came before its marker did."""
        marker_offset = self._next_offset() - before
        self.offsets.end_transaction(
            producer, is_committed=is_committed, marker_offset=marker_offset
        )

    @rule(partition=PARTITIONS)
    def forget(self, partition: TopicPartition) -> None:
        self.offsets.forget(partition)

    def _next_offset(self) -> int:
        self.end += 1
        return self.end - 1

    @invariant()
    def what_is_there_is_what_a_look_at_all_finds(self) -> None:
        offsets = self.offsets
        every = {*offsets.committed, *offsets.pending}
        every.update(*offsets.transactional.values())
        assert offsets.partitions() == every
        for wanted in (set[str](), {"orders"}, {"bills", "orders"}, {"other"}):
            expected = sorted(partition for partition in every if partition[0] in wanted)
            assert offsets.of_topics(wanted) == expected

    @invariant()
    def who_is_in_a_transaction_is_who_some_producer_staged(self) -> None:
        offsets = self.offsets
        assert all(offsets.transactional.values()), "a producer without anything stays behind"
        for partition in ALL:
            is_staged = any(partition in staged for staged in offsets.transactional.values())
            assert offsets.is_in_transaction(partition) == is_staged
            assert offsets.is_unstable(partition) == (is_staged or partition in offsets.pending)


TestCommits = Commits.TestCase
TestCommits.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


class _NeverWalked(dict[int, dict[TopicPartition, Commit]]):
    """Open transactions that nobody goes through."""

    def _refuse(self) -> NoReturn:
        raise AssertionError("went through all open transactions")

    __iter__ = keys = values = items = _refuse


def test_no_question_about_one_partition_goes_through_all_open_transactions() -> None:
    offsets = Offsets()
    offsets.transactional = _NeverWalked()
    for producer in range(10):
        offsets.put_staged(producer, ("orders", producer), Commit(1, -1, "", 0, -1, producer))
    assert offsets.is_unstable(("orders", 3))
    assert not offsets.is_in_transaction(("orders", 10))
    assert offsets.of_topics({"bills"}) == []
    offsets.forget(("orders", 3))
    assert not offsets.is_unstable(("orders", 3))
    assert len(offsets.transactional) == 9
