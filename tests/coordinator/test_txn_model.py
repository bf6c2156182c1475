"""Staged and served offsets are a fold over the log: live, and loaded at every offset of it.

Source: docs/spec/transactions.md §4.3, check T4.5.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_delete, txn_offset_commit
from barnabas.protocol.records import batch
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of, partition_of
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.offsets_model import Folded, content_of, folded
from tests.sim.simulated_loop import SimulatedLoop

G = partition_of("g")
GROUPS = [name for name in (f"g{n}" for n in range(40)) if partition_of(name) == G][:2]
INDEXES = st.integers(0, 2)
OFFSETS = st.integers(0, 99)
PRODUCERS = st.sampled_from([7, 8])
TIMEOUT_S = 6
"""Longer than ``offsets.commit.timeout.ms``."""


def live(harness: CoordinatorHarness) -> Folded:
    groups = harness.coordinator.registry.groups
    return content_of({name: group.offsets for name, group in groups.items()})


class History(RuleBasedStateMachine):
    """One coordinator that leads, and every way in which offsets come, fail and go."""

    @initialize()
    def begin(self) -> None:
        self.harness = CoordinatorHarness()
        self.hosted = self.harness.log.partition(G)
        self.seen: list[tuple[int, Folded]] = []
        """What was served and staged when the log ended there."""
        self.unanswered_plain: list[Any] = []

    def teardown(self) -> None:
        """At the end: every state that was seen is what a load makes of the log up to there."""
        if not hasattr(self, "harness"):
            return
        try:
            for end, expected in self.seen:
                assert folded(self.hosted.batches, end) == expected, f"the fold at {end}"
                assert self._loaded(end) == expected, f"loaded at {end}"
        finally:
            self.harness.close()

    def _loaded(self, end: int) -> Folded:
        loop = SimulatedLoop(1)
        log = MemoryLog(loop)
        partition = log.partition(G)
        partition.batches = [data for data in self.hosted.batches if batch.next_offset(data) <= end]
        partition.end = partition.high_watermark = end
        harness = CoordinatorHarness(loop=loop, log=log)
        try:
            harness.turn()
            return live(harness)
        finally:
            harness.close()

    def look(self) -> None:
        """Compare where all is committed: above the high watermark it depends on what comes."""
        self.harness.turn()
        if self.hosted.high_watermark == self.hosted.end:
            self.seen.append((self.hosted.end, live(self.harness)))

    # -- commits ---------------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS), index=INDEXES, offset=OFFSETS)
    def commit(self, group: str, index: int, offset: int) -> None:
        asked = self.harness.commit(offset, group=group, index=index)
        if not asked.is_answered:
            self.unanswered_plain.append(asked)
        self.look()

    @rule(
        group=st.sampled_from(GROUPS),
        producer=PRODUCERS,
        offsets=st.dictionaries(INDEXES, OFFSETS, min_size=1),
    )
    def commit_in_transaction(self, group: str, producer: int, offsets: dict[int, int]) -> None:
        self._commit_in_transaction(group, producer, offsets)
        self.look()

    def _commit_in_transaction(self, group: str, producer: int, offsets: dict[int, int]) -> Any:
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer,
            producer_epoch=0,
            topics=[
                txn_offset_commit.Topic(
                    name="orders",
                    partitions=[
                        txn_offset_commit.Partition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )
        return self.harness.ask("txn_offset_commit", request, 3)

    @rule(
        group=st.sampled_from(GROUPS),
        producer=PRODUCERS,
        offsets=st.dictionaries(INDEXES, OFFSETS, min_size=1),
    )
    def fail_to_commit(self, group: str, producer: int, offsets: dict[int, int]) -> None:
        """T4.7: nothing gets into the log, of both kinds."""
        self.harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
        asked = self._commit_in_transaction(group, producer, offsets)
        plain = self.harness.commit(1, group=group)
        self.harness.log.append_fails_with = None
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert codes_of(asked) == [unavailable] * len(offsets)
        assert codes_of(plain) == [unavailable]
        self.look()

    @rule(
        group=st.sampled_from(GROUPS),
        index=INDEXES,
        offset=OFFSETS,
        producer=PRODUCERS,
        order=st.permutations(["plain", "forget", "transaction", "transaction"]),
    )
    def do_much_in_one_turn(
        self, group: str, index: int, offset: int, producer: int, order: list[str]
    ) -> None:
        """The journal gathers what a transaction's batch must not overtake."""
        for step in order:
            if step == "plain":
                asked = self.harness.hand_in("offset_commit", _plain(group, index, offset), 8)
                self.unanswered_plain.append(asked)
            elif step == "forget":
                self.harness.hand_in("offset_delete", _deletion(group, index), 0)
            else:
                request = txn_offset_commit.TxnOffsetCommitRequest(
                    transactional_id="t",
                    group_id=group,
                    producer_id=producer,
                    producer_epoch=0,
                    topics=[_staged(index, offset)],
                )
                self.harness.hand_in("txn_offset_commit", request, 3)
        self.harness.turn()
        self.look()

    # -- ends ------------------------------------------------------------------------------------

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        self.harness.end_transaction(is_commit=is_commit, producer_id=producer, group=GROUPS[0])
        self.look()

    # -- deletions -------------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS), index=INDEXES)
    def forget(self, group: str, index: int) -> None:
        self.harness.ask("offset_delete", _deletion(group, index), 0)
        self.look()

    @rule()
    def delete_the_topic(self) -> None:
        self.harness.coordinator.topics_deleted(["orders"])
        self.look()

    # -- replicas --------------------------------------------------------------------------------

    @rule()
    def hold_replication(self) -> None:
        self.harness.log.is_replicated = False

    @rule()
    def replicate(self) -> None:
        self.harness.log.replicate(G)
        self.unanswered_plain.clear()
        self.look()

    @rule()
    def resume_replication(self) -> None:
        self.harness.log.is_replicated = True
        self.replicate()

    @precondition(lambda self: not self.unanswered_plain)
    @rule()
    def time_out(self) -> None:
        """Transactions' batches stay; a plain commit that times out may show after a load only."""
        self.harness.wait(TIMEOUT_S)
        self.look()

    @rule()
    def reload(self) -> None:
        """All is committed when the next coordinator serves."""
        self.harness.log.is_replicated = True
        epoch = self.hosted.leader_epoch + 1
        self.harness.log.resign(G)
        self.harness.coordinator.on_resigned(G, epoch)
        self.harness.elect(G, epoch)
        self.harness.log.replicate(G)
        self.unanswered_plain.clear()
        self.look()


def _plain(group: str, index: int, offset: int) -> offset_commit.OffsetCommitRequest:
    partition = offset_commit.Partition(
        partition_index=index, committed_offset=offset, committed_metadata=""
    )
    return offset_commit.OffsetCommitRequest(
        group_id=group, topics=[offset_commit.Topic(name="orders", partitions=[partition])]
    )


def _staged(index: int, offset: int) -> txn_offset_commit.Topic:
    partition = txn_offset_commit.Partition(
        partition_index=index, committed_offset=offset, committed_metadata=""
    )
    return txn_offset_commit.Topic(name="orders", partitions=[partition])


def _deletion(group: str, index: int) -> offset_delete.OffsetDeleteRequest:
    partition = offset_delete.Partition(partition_index=index)
    return offset_delete.OffsetDeleteRequest(
        group_id=group, topics=[offset_delete.Topic(name="orders", partitions=[partition])]
    )


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
