"""Any history of producers, failing appends, markers, clocks and failovers keeps what was promised.

Source: docs/spec/transactions.md §2 and §3, check T3.10 as far as one coordinator can be judged:

- at most one transition of an id is pending, and none when all is quiet;
- markers leave only for an end that is committed, and say what it says;
- an answered commit is never aborted, an answered abort never committed;
- what was written in a transaction meets one marker in the end, in every partition;
- what is served is what a load of the log would serve.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.ports import OFFSETS_TOPIC, OnAppended
from barnabas.coordinator.terms import LoadState
from barnabas.coordinator.transactions.ports import MarkerWrite, TopicPartition
from barnabas.coordinator.transactions.replay import TransactionReplay
from barnabas.coordinator.transactions.transaction import NO_EPOCH, Metadata
from barnabas.coordinator.transactions.transaction_record import id_of, metadata_of
from barnabas.coordinator.transactions.transaction_state import PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.records import batch
from tests.coordinator.coordinator_harness import Asked
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.transactions.transactions_harness import (
    PARTITIONS,
    TransactionsHarness,
    codes,
    identity,
    partition_of,
)
from tests.sim.simulated_loop import SimulatedLoop

STATE = TransactionState
NAMES = ["t", "u"]
PRODUCERS = st.sampled_from([0, 0, 1, 2])
FAILURES = st.sampled_from(
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        None,
        None,
        None,
        None,
    ]
)
TRANSIENT = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
GONE = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
TIMEOUT_MS = 20_000


@dataclass
class Written:
    """What a producer wrote to one partition in one transaction."""

    is_promised: bool | None = None
    """Whether it was told that this is committed, or aborted; None while it was told neither."""
    outcome: bool | None = None
    """What the marker said."""

    def check(self) -> None:
        if self.is_promised is not None and self.outcome is not None:
            assert self.is_promised is self.outcome, "an answered end was undone"


@dataclass
class Producer:
    """A producer that follows the rules: one request at a time, and an end is retried as it was."""

    name: str
    identity: tuple[int, int] = (-1, -1)
    asked: Asked | None = None
    kind: str = ""
    partitions: list[TopicPartition] = field(default_factory=list)
    ending: bool | None = None
    """The end that was asked for and not decided."""
    written: list[Written] = field(default_factory=list)


class NotedLog(MemoryLog):
    """Knows of which ids the last record is undecided: appended, but not answered as committed."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(loop)
        self.undecided: set[str] = set()

    def append(  # type: ignore[override]
        self, partition: int, data: bytearray, *, on_appended: OnAppended, **fields: Any
    ) -> None:
        names = {id_of(record.key or b"") for record in batch.records(data)}

        def noted(code: ErrorCode, base: int) -> None:
            if code:
                self.undecided |= names
            else:
                self.undecided -= names
            on_appended(code, base)

        super().append(partition, data, on_appended=noted, **fields)


def in_order(metadata: Metadata) -> Metadata:
    """Partitions have no order: the log has those of a topic together."""
    return replace(metadata, partitions=tuple(sorted(metadata.partitions)))


class TransactionsMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        loop = SimulatedLoop(1)
        self.log = NotedLog(loop)
        self.harness = TransactionsHarness(
            loop=loop, log=self.log, request_timeout_ms=2000, abort_check_interval_ms=1000
        )
        self.harness.markers.is_prompt = False
        self.producers = [Producer(name) for name in ("t", "t", "u")]
        self.open: dict[TopicPartition, dict[int, list[Written]]] = {}
        self.epochs = [0] * PARTITIONS
        self.sent = 0
        self.committed: list[tuple[str, int]] = []
        """Ids, and which of their records is the PrepareCommit that was answered."""

    # -- producers -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Act on every answer that has come."""
        self.harness.turn(3)
        self.check_markers()
        for producer in self.producers:
            asked, producer.asked = producer.asked, None
            if asked is None:
                continue
            if not asked.is_answered:
                producer.asked = asked
            elif producer.kind == "init":
                self.learn_identity(producer, asked)
            elif producer.kind == "add":
                self.learn_added(producer, asked)
            else:
                self.learn_end(producer, asked)

    def forget(self, producer: Producer) -> None:
        producer.identity, producer.ending, producer.written = (-1, -1), None, []

    def learn_identity(self, producer: Producer, asked: Asked) -> None:
        code, *found = identity(asked)
        if code:
            assert code in TRANSIENT | {ErrorCode.PRODUCER_FENCED}
            if code is ErrorCode.PRODUCER_FENCED:
                self.forget(producer)
            return
        self.forget(producer)
        producer.identity = found[0], found[1]

    def learn_added(self, producer: Producer, asked: Asked) -> None:
        [code] = set(codes(asked).values()) if asked.version < 4 else {asked.code}
        if code in GONE:
            self.forget(producer)
        elif code:
            assert code in TRANSIENT
        else:
            for partition in producer.partitions:
                self.write(producer, partition)

    def write(self, producer: Producer, partition: TopicPartition) -> None:
        """A first batch, if the coordinator vouches for it now."""
        topic, index = partition
        asked = self.harness.hand_in_verify(producer.identity, {topic: [index]}, producer.name)
        if asked.is_answered and codes(asked)[partition] is ErrorCode.NONE:
            written = Written()
            producer.written.append(written)
            by_producer = self.open.setdefault(partition, {})
            by_producer.setdefault(producer.identity[0], []).append(written)

    def learn_end(self, producer: Producer, asked: Asked) -> None:
        code, is_commit = asked.code, producer.ending
        if code in GONE:
            self.forget(producer)
        elif code is ErrorCode.INVALID_TXN_STATE:
            producer.ending = None  # nothing was added
            assert all(written.outcome is not None for written in producer.written) or (
                not producer.written
            )
        elif code:
            assert code in TRANSIENT
        else:
            for written in producer.written:
                written.is_promised = is_commit
                written.check()
            producer.written, producer.ending = [], None
            if is_commit:
                self.note_commit(producer.name)

    def note_commit(self, name: str) -> None:
        """It is promised from now on: nothing may follow its decision but its completion."""
        states = self.harness.states(name)
        decided = max(
            (number for number, state in enumerate(states) if state == "PrepareCommit"), default=-1
        )
        if decided >= 0 and states[decided + 1 :] in ([], ["CompleteCommit"]):
            self.committed.append((name, decided))

    @rule(number=PRODUCERS, names_itself=st.booleans())
    def init(self, number: int, names_itself: bool) -> None:
        producer = self.producers[number]
        if producer.asked is None:
            named = producer.identity if names_itself else (-1, -1)
            producer.kind = "init"
            producer.asked = self.harness.hand_in_init(
                producer.name, producer=named, timeout_ms=TIMEOUT_MS
            )
        self.settle()

    @rule(number=PRODUCERS, indexes=st.sets(st.integers(0, 3), min_size=1, max_size=3))
    def add(self, number: int, indexes: set[int]) -> None:
        producer = self.producers[number]
        if producer.asked is None and producer.identity[0] >= 0 and producer.ending is None:
            producer.kind = "add"
            producer.partitions = [("orders", index) for index in sorted(indexes)]
            producer.asked = self.harness.hand_in_add(
                producer.identity, {"orders": sorted(indexes)}, name=producer.name
            )
        self.settle()

    @rule(number=PRODUCERS, group=st.sampled_from(["g", "h"]))
    def add_offsets(self, number: int, group: str) -> None:
        producer = self.producers[number]
        if producer.asked is None and producer.identity[0] >= 0 and producer.ending is None:
            producer.kind = "add"
            producer.partitions = [(OFFSETS_TOPIC, group_partition(group, 4))]
            asked = self.harness.hand_in_add_offsets(
                producer.identity, group, name=producer.name, version=3
            )
            asked.version = 4  # its code is at the top
            producer.asked = asked
        self.settle()

    @rule(number=PRODUCERS, is_commit=st.booleans())
    def end(self, number: int, is_commit: bool) -> None:
        producer = self.producers[number]
        if producer.asked is None and producer.identity[0] >= 0:
            if producer.ending is None:
                producer.ending = is_commit
            producer.kind = "end"
            producer.asked = self.harness.hand_in_end(
                producer.identity, is_commit=producer.ending, name=producer.name
            )
        self.settle()

    @rule(number=PRODUCERS, is_commit=st.booleans(), count=st.integers(0, 3))
    def transact(self, number: int, is_commit: bool, count: int) -> None:
        """What producers do most, as far as it goes."""
        self.init_if_new(number)
        self.add(number=number, indexes={0, 1})
        self.add_offsets(number=number, group="g")
        self.end(number=number, is_commit=is_commit)
        if count:
            self.write_markers(count=count)

    def init_if_new(self, number: int) -> None:
        if self.producers[number].identity[0] < 0:
            self.init(number=number, names_itself=False)

    # -- markers ---------------------------------------------------------------------------------

    def check_markers(self) -> None:
        """Each was sent for an end that is committed and the last word on its id."""
        writes = self.harness.markers.writes
        for write in writes[self.sent :]:
            assert any(self.decided(name, write) for name in NAMES), "a marker without a decision"
        self.sent = len(writes)

    def decided(self, name: str, write: MarkerWrite) -> bool:
        if partition_of(name) != write.transaction_partition:
            return False
        records = self.harness.records(name)
        if not records or records[-1].value is None:
            return False
        last = metadata_of(records[-1].value)
        mark = self.log.partition(write.transaction_partition).high_watermark
        return (
            last.state is (STATE.PREPARE_COMMIT if write.is_commit else STATE.PREPARE_ABORT)
            and (last.producer_id, last.producer_epoch) == (write.producer_id, write.producer_epoch)
            and set(write.partitions) <= set(last.partitions)
            and records[-1].offset < mark
        )

    @rule(count=st.integers(1, 4))
    def write_markers(self, count: int) -> None:
        for write, partition in self.harness.markers.waiting[:count]:
            if write.is_current():
                for written in self.open.get(partition, {}).pop(write.producer_id, ()):
                    written.outcome = write.is_commit
                    written.check()
        self.harness.markers.write_all(count=count)
        self.settle()

    @rule()
    def fail_markers(self) -> None:
        self.harness.markers.write_all(ErrorCode.UNKNOWN_SERVER_ERROR, count=1)
        self.settle()

    # -- what goes wrong -------------------------------------------------------------------------

    @rule(code=FAILURES)
    def fail_appends(self, code: ErrorCode | None) -> None:
        self.log.append_fails_with = code

    @rule(is_replicated=st.booleans())
    def replicate(self, is_replicated: bool) -> None:
        self.log.is_replicated = is_replicated
        if is_replicated:
            for index in range(PARTITIONS):
                self.log.replicate(index)
        self.settle()

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.1, 5.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.harness.wait(seconds)
        self.settle()

    @rule(hours=st.integers(-1, 1))
    def jump(self, hours: int) -> None:
        self.harness.clock_jump_ms = hours * 3_600_000

    @rule(index=st.integers(0, PARTITIONS - 1), is_lost=st.booleans())
    def fail_over(self, index: int, is_lost: bool) -> None:
        """Somebody else led in between; ``is_lost``: nobody else had what is not committed."""
        hosted = self.log.partition(index)
        self.harness.resign(index, self.epochs[index] + 1)
        if is_lost:
            hosted.truncate(hosted.high_watermark)
        self.settle()
        self.epochs[index] += 2
        self.harness.elect(index, self.epochs[index])
        self.settle()

    @rule(index=st.integers(0, PARTITIONS - 1))
    def stay(self, index: int) -> None:
        """The same leader under a higher epoch."""
        if self.log.partition(index).is_led:
            self.epochs[index] += 1
            self.harness.elect(index, self.epochs[index])
            self.settle()

    # -- what holds ------------------------------------------------------------------------------

    @invariant()
    def answered_commits_stay(self) -> None:
        for name, decided in self.committed:
            states = self.harness.states(name)
            assert states[decided] == "PrepareCommit"
            assert states[decided + 1 : decided + 2] in ([], ["CompleteCommit"])

    @invariant()
    def what_is_served_is_what_a_load_would_serve(self) -> None:
        for term in self.harness.coordinator.registry.terms():
            if term.load_state is not LoadState.OWNED:
                continue
            logged = self.folded(term.partition)
            for name in NAMES:
                if partition_of(name) != term.partition or name in self.log.undecided:
                    continue
                found = term.find(name)
                if found is not None and found.pending is None:
                    is_logged = found.metadata.producer_epoch != NO_EPOCH
                    assert logged.get(name) == (in_order(found.metadata) if is_logged else None)

    def folded(self, index: int) -> dict[str, Metadata]:
        replay = TransactionReplay()
        for data in self.log.partition(index).batches:
            for _ in replay.defer_batch(data, 0, 0):
                pass
        for _ in replay.apply_deferred():
            pass
        return {id_of(key): in_order(metadata_of(value)) for key, value in replay.values.items()}

    def teardown(self) -> None:
        """All heals: then every request is answered, and every transaction is over."""
        if not hasattr(self, "harness"):
            return
        self.log.append_fails_with = None
        self.replicate(is_replicated=True)
        for _ in range(12):
            self.write_markers(count=1000)
            self.harness.wait(TIMEOUT_MS / 1000)
            self.settle()
        for producer in self.producers:
            assert producer.asked is None, "never answered"
        for term in self.harness.coordinator.registry.terms():
            assert term.load_state is LoadState.OWNED
            for transaction in term.transactions.values():
                assert transaction.pending is None
                assert transaction.state not in PREPARED
                assert transaction.state is not STATE.ONGOING
        assert not any(self.open.values()), "a transaction that nobody ends in a partition"
        self.what_is_served_is_what_a_load_would_serve()
        self.harness.close()


TransactionsMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
TestTransactionsMachine = TransactionsMachine.TestCase
