"""Commits in columns are those one by one, whatever else happens: two coordinators, one history.

One of them reads requests as a node does, so that many partitions come in rows; the other one gets
the same partitions as objects. Source: docs/spec/coordinator.md §3.2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnabas.coordinator.bulk_offsets import ROWS_MAX
from barnabas.coordinator.commit_columns import CommitColumns
from barnabas.coordinator.offsets import TransactionalCommit
from barnabas.coordinator.ports import Caller
from barnabas.protocol.audit_topic import TOOL_PREFIX
from barnabas.protocol.codec.compiler import decode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from barnabas.protocol.offsets_topic import OffsetKey, parse_key
from tests.coordinator.coordinator_harness import (
    Asked,
    CoordinatorHarness,
    partition_of,
)
from tests.coordinator.offsets_model import content_of

G = partition_of("g")
GROUPS = [name for name in (f"g{n}" for n in range(40)) if partition_of(name) == G][:2]
WIDE, NARROW = 80, 20
COUNTS = {"wide": WIDE, "narrow": NARROW, "orders": 4}
TIMEOUT_S = 6
"""Longer than ``offsets.commit.timeout.ms``."""

STEPS = (
    *("all",) * 6,
    *("turn",) * 3,
    *("replicate",) * 2,
    *("one", "other", "fetch", "stable", "forget", "hold_replication", "time_out", "look"),
)
"""What happens to one group, by how often."""

TEXTS = st.sampled_from(["", None, "a", "abc", "x" * 64, "x" * 65, "défi", "x" * 5000])


class ObjectsHarness(CoordinatorHarness):
    """Gets no rows."""

    def arrived(self, message_class: type, version: int, data: bytes) -> Any:
        return decode(message_class, version, data)


@st.composite
def topics(draw: Any) -> list[offset_commit.Topic]:
    """Those of a request; mostly as consumers commit, the same partitions again and again."""
    names = draw(st.lists(st.sampled_from([*COUNTS, "gone"]), min_size=1, max_size=3))
    return [offset_commit.Topic(name=name, partitions=draw(partitions(name))) for name in names]


@st.composite
def partitions(draw: Any, name: str) -> list[offset_commit.Partition]:
    count = COUNTS.get(name, NARROW)
    indexes = draw(
        st.one_of(
            st.just(list(range(count))),
            st.just(list(range(count))),
            st.just(list(reversed(range(count)))),
            st.just(list(range(min(16, count)))),
            st.lists(st.integers(0, count - 1), min_size=1, max_size=WIDE),
            st.lists(st.integers(-1, count), min_size=14, max_size=18),
        )
    )
    first, epoch = draw(st.integers(0, 2**40)), draw(st.sampled_from([-1, 5]))
    text = draw(TEXTS)
    one_more = draw(st.one_of(st.just(text), TEXTS))
    made = [
        offset_commit.Partition(
            partition_index=index,
            committed_offset=first + number,
            committed_leader_epoch=epoch + number if epoch > 0 else epoch,
            commit_timestamp=draw(st.sampled_from([-1, 77])),
            committed_metadata=text,
        )
        for number, index in enumerate(indexes)
    ]
    made[draw(st.integers(0, len(made) - 1))].committed_metadata = one_more
    return made


class TwoCoordinators(RuleBasedStateMachine):
    """The same requests to both; what is written and answered is compared after each step."""

    @initialize(history=st.booleans())
    def begin(self, history: bool) -> None:
        self.both = [make(history_enable=history) for make in (CoordinatorHarness, ObjectsHarness)]
        for harness in self.both:
            harness.topics.counts |= COUNTS
        self.asked: list[tuple[Asked, ...]] = []
        self.first = 0
        """An offset that was not committed before."""

    def teardown(self) -> None:
        if not hasattr(self, "both"):
            return
        try:
            self.look()
            self.do(lambda harness: harness.wait(2 * TIMEOUT_S))
            self.look()
            assert all(len(asked[0].answers) == 1 for asked in self.asked)
            audits = [harness.audit.entries for harness in self.both]
            assert audits[0] == audits[1]
        finally:
            for harness in self.both:
                harness.close()

    def do(self, act: Callable[[CoordinatorHarness], Any]) -> None:
        """To both; then what they wrote and answered must be the same."""
        found = tuple(act(harness) for harness in self.both)
        if isinstance(found[0], Asked):
            self.asked.append(found)
        written = [harness.log.partition(G).batches for harness in self.both]
        assert written[0] == written[1]
        for asked in self.asked:
            answers = [[_sorted(answer) for answer in one.answers] for one in asked]
            assert answers[0] == answers[1]

    # -- what comes --------------------------------------------------------------------------

    @rule(
        group=st.sampled_from(GROUPS),
        asked=topics(),
        version=st.integers(1, 9),
        retention=st.sampled_from([-1, -1, 0, 1000]),
        generation=st.sampled_from([-1, -1, -1, 1]),
        is_tool=st.booleans(),
        in_this_turn=st.booleans(),
    )
    def commit(
        self,
        group: str,
        asked: list[offset_commit.Topic],
        version: int,
        retention: int,
        generation: int,
        is_tool: bool,
        in_this_turn: bool,
    ) -> None:
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            retention_time_ms=retention,
            topics=asked,
        )
        caller = Caller(
            client_id="app" if not is_tool else f"{TOOL_PREFIX}:c1:moved", host="10.0.0.7"
        )
        self.do(
            lambda harness: (harness.hand_in if in_this_turn else harness.ask)(
                "offset_commit", request, version, caller=caller
            )
        )

    @rule(steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=12))
    def as_consumers_do(self, steps: list[str]) -> None:
        """One group, whose columns of the last time are replaced if nothing comes between."""
        group = GROUPS[0]
        for step in steps:
            self.first += 1
            if step == "all":
                request = bulk(self.first, WIDE, group=group)
                self.do(lambda harness: harness.hand_in("offset_commit", request, 8))  # noqa: B023
            elif step == "other":
                request = bulk(self.first, NARROW, group=group)
                self.do(lambda harness: harness.hand_in("offset_commit", request, 8))  # noqa: B023
            elif step == "one":
                self.commit_one(group, "wide", 3, self.first)
            elif step == "fetch":
                self.fetch(group, None, 7, is_stable=False)
            elif step == "stable":
                self.fetch(group, {"wide": list(range(WIDE))}, 7, is_stable=True)
            elif step == "forget":
                self.forget(group, 3)
            else:
                getattr(self, step)()

    @rule(
        group=st.sampled_from(GROUPS),
        name=st.sampled_from(["wide", "narrow"]),
        index=st.integers(0, NARROW - 1),
        offset=st.integers(0, 99),
    )
    def commit_one(self, group: str, name: str, index: int, offset: int) -> None:
        self.do(lambda harness: harness.commit(offset, group=group, topic=name, index=index))

    @rule(group=st.sampled_from(GROUPS), indexes=st.sets(st.integers(0, 5), min_size=1))
    def commit_in_transaction(self, group: str, indexes: set[int]) -> None:
        made = [
            txn_offset_commit.Partition(
                partition_index=index, committed_offset=7, committed_metadata=""
            )
            for index in sorted(indexes)
        ]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=7,
            producer_epoch=0,
            topics=[txn_offset_commit.Topic(name="wide", partitions=made)],
        )
        self.do(lambda harness: harness.ask("txn_offset_commit", request, 3))

    @rule(is_commit=st.booleans())
    def end_transaction(self, is_commit: bool) -> None:
        self.do(lambda harness: harness.end_transaction(is_commit=is_commit, group=GROUPS[0]))

    @rule(
        group=st.sampled_from(GROUPS),
        wanted=st.one_of(
            st.none(),
            st.just({"wide": list(range(WIDE))}),
            st.just({"wide": list(reversed(range(WIDE))), "narrow": list(range(NARROW))}),
            st.dictionaries(
                st.sampled_from([*COUNTS, "gone"]),
                st.lists(st.integers(0, WIDE), min_size=1, max_size=20),
                min_size=1,
            ),
        ),
        version=st.integers(2, 7),
        is_stable=st.booleans(),
    )
    def fetch(
        self, group: str, wanted: dict[str, list[int]] | None, version: int, is_stable: bool
    ) -> None:
        self.do(
            lambda harness: harness.fetch(
                group=group, topics=wanted, version=version, is_stable=is_stable
            )
        )

    @rule(group=st.sampled_from(GROUPS), is_all=st.booleans())
    def fetch_of_groups(self, group: str, is_all: bool) -> None:
        wide = [offset_fetch.Topic(name="wide", partition_indexes=list(range(WIDE)))]
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.Group(group_id=group, topics=None if is_all else wide)]
        )
        self.do(lambda harness: harness.ask("offset_fetch", request, 9))

    # -- what goes ---------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS), index=st.integers(0, 2))
    def forget(self, group: str, index: int) -> None:
        partition = offset_delete.Partition(partition_index=index)
        request = offset_delete.OffsetDeleteRequest(
            group_id=group, topics=[offset_delete.Topic(name="wide", partitions=[partition])]
        )
        self.do(lambda harness: harness.ask("offset_delete", request, 0))

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        request = delete_groups.DeleteGroupsRequest(groups_names=[group])
        self.do(lambda harness: harness.ask("delete_groups", request, 1))

    @rule()
    def delete_the_topic(self) -> None:
        self.do(lambda harness: harness.coordinator.topics_deleted(["wide"]))

    # -- what goes wrong ---------------------------------------------------------------------

    @rule()
    def fail_appends(self) -> None:
        for harness in self.both:
            harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS

    @rule()
    def append_again(self) -> None:
        for harness in self.both:
            harness.log.append_fails_with = None

    @rule()
    def hold_replication(self) -> None:
        for harness in self.both:
            harness.log.is_replicated = False

    @rule()
    def replicate(self) -> None:
        for harness in self.both:
            harness.log.is_replicated = True
            harness.log.replicate(G)
        self.do(lambda harness: harness.turn())

    @rule()
    def time_out(self) -> None:
        self.do(lambda harness: harness.wait(TIMEOUT_S))

    @rule(limit=st.sampled_from([2_000, 20_000, 1_000_000]))
    def limit_batches(self, limit: int) -> None:
        for harness in self.both:
            harness.log.bytes_max = limit

    @rule()
    def reload(self) -> None:
        """Another coordinator reads what is there; whoever waits is told 16."""
        for harness in self.both:
            harness.log.is_replicated = True
            epoch = harness.log.partition(G).leader_epoch + 1
            harness.log.resign(G)
            harness.coordinator.on_resigned(G, epoch)
            harness.elect(G, epoch)
            harness.log.replicate(G)
        self.do(lambda harness: harness.turn())

    # -- what is seen ------------------------------------------------------------------------

    @rule()
    def turn(self) -> None:
        self.do(lambda harness: harness.turn())

    @rule()
    def look(self) -> None:
        """All that is served, staged and on its way; who looks at it makes objects of columns."""
        seen = []
        for harness in self.both:
            groups = harness.coordinator.registry.groups
            counts = {name: (group.commits, group.offsets.kept) for name, group in groups.items()}
            offsets = {name: group.offsets for name, group in groups.items()}
            served = {name: _served(found.committed) for name, found in offsets.items()}
            pending = {name: _served(found.pending) for name, found in offsets.items()}
            seen.append((served, pending, counts, content_of(offsets)))
        assert seen[0] == seen[1]


def _served(commits: dict[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    return {
        partition: (
            commit.offset,
            commit.leader_epoch,
            commit.metadata,
            commit.committed_ms,
            commit.expires_ms,
            commit.record_offset,
        )
        for partition, commit in commits.items()
    }


def _sorted(answer: Any) -> Any:
    """Partitions in order: who asks for all, or out of order, is told them in any."""
    for group in getattr(answer, "groups", ()) or ():
        _sorted(group)
    for topic in getattr(answer, "topics", ()) or ():
        if hasattr(topic, "partitions"):
            topic.partitions = sorted(
                topic.partitions, key=lambda one: (one.partition_index, one.error_code)
            )
    return answer


TestTwoCoordinators = TwoCoordinators.TestCase
TestTwoCoordinators.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@settings(max_examples=120)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=5, max_size=40))
def test_what_consumers_commit_again_and_again_is_served_as_if_it_were_committed_one_by_one(
    steps: list[str],
) -> None:
    both = TwoCoordinators()
    both.begin(history=False)
    try:
        both.as_consumers_do(steps)
    finally:
        both.teardown()


def bulk(
    first: int, count: int, topic: str = "wide", group: str = "g"
) -> offset_commit.OffsetCommitRequest:
    made = [
        offset_commit.Partition(
            partition_index=index, committed_offset=first + index, committed_metadata=""
        )
        for index in range(count)
    ]
    return offset_commit.OffsetCommitRequest(
        group_id=group, topics=[offset_commit.Topic(name=topic, partitions=made)]
    )


@pytest.fixture
def wide(harness: CoordinatorHarness) -> CoordinatorHarness:
    harness.topics.counts |= {"wide": 3000, "narrow": 100}
    return harness


def rows_of(harness: CoordinatorHarness) -> int:
    found = harness.group().offsets.bulk
    return 0 if found is None else int(found.rows)


def test_a_second_commit_of_the_same_partitions_stays_in_columns(wide: CoordinatorHarness) -> None:
    assert (
        wide.ask("offset_commit", bulk(0, 300), 8).answer.topics[0].partitions[299].error_code == 0
    )
    assert rows_of(wide) == 0
    wide.ask("offset_commit", bulk(1000, 300), 8)
    assert rows_of(wide) == 300
    answer = wide.fetch(topics={"wide": list(range(300))}).answer
    assert [one.committed_offset for one in answer.topics[0].partitions] == list(range(1000, 1300))
    assert rows_of(wide) == 300
    assert wide.committed(topic="wide", index=7) == 1007
    assert rows_of(wide) == 0


def test_a_group_keeps_a_bounded_number_of_commits_in_columns(wide: CoordinatorHarness) -> None:
    names = [f"wide-{number}" for number in range(5)]
    wide.topics.counts |= dict.fromkeys(names, 3000)
    for first in (0, 1):
        for name in names:
            wide.ask("offset_commit", bulk(first, 3000, name), 8)
            assert rows_of(wide) <= ROWS_MAX
    for name in names:
        answer = wide.fetch(topics={name: list(range(3000))}).answer
        assert {
            one.committed_offset - one.partition_index for one in answer.topics[0].partitions
        } == {1}


def in_flight(harness: CoordinatorHarness, *firsts: int) -> list[CommitColumns]:
    """What was staged in columns, after another commit of the same partitions."""
    harness.ask("offset_commit", bulk(0, 20), 8)
    harness.log.is_replicated = False
    for first in firsts:
        harness.ask("offset_commit", bulk(first, 20), 8)
    return list(harness.group().offsets.bulk.in_flight)


def test_columns_of_an_older_record_do_not_replace_a_newer_commit(
    wide: CoordinatorHarness,
) -> None:
    (columns,) = in_flight(wide, 100)
    offsets = wide.group().offsets
    wide.commit(999, topic="wide", index=3)
    offsets.settle(("wide", 3), offsets.pending["wide", 3], 90)
    offsets.settle_columns(columns, 70)
    assert offsets.committed["wide", 3].offset == 999
    assert offsets.committed["wide", 4].offset == 104


def test_columns_of_an_older_record_do_not_replace_what_a_transaction_put_into_service(
    wide: CoordinatorHarness,
) -> None:
    (columns,) = in_flight(wide, 100)
    offsets = wide.group().offsets
    newer = TransactionalCommit(999, -1, "", 0, caller=None, change="")
    newer.record_offset = 90
    offsets.stage_in_transaction(7, ("wide", 3), newer, 0)
    offsets.end_transaction(7, is_committed=True, marker_offset=91)
    offsets.settle_columns(columns, 70)
    assert rows_of(wide) == 0
    assert offsets.committed["wide", 3].offset == 999
    assert offsets.committed["wide", 4].offset == 104


def test_of_columns_that_are_settled_out_of_order_those_of_the_newer_records_are_served(
    wide: CoordinatorHarness,
) -> None:
    older, newer = in_flight(wide, 100, 200)
    offsets = wide.group().offsets
    offsets.settle_columns(newer, 90)
    offsets.settle_columns(older, 70)
    assert {commit.offset for commit in offsets.committed.values()} == set(range(200, 220))
    assert offsets.is_settled


def test_a_partition_that_was_deleted_is_not_served_from_the_columns_of_others(
    wide: CoordinatorHarness,
) -> None:
    wide.ask("offset_commit", bulk(0, 20), 8)
    wide.ask("offset_commit", bulk(1, 20), 8)
    deleted = offset_delete.Topic(
        name="wide", partitions=[offset_delete.Partition(partition_index=3)]
    )
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=[deleted])
    assert wide.ask("offset_delete", request, 0).code is ErrorCode.NONE
    assert wide.committed(topic="wide", index=3) == -1
    wide.ask("offset_commit", bulk(2, 20), 8)
    answer = wide.fetch().answer
    assert [one.committed_offset for one in answer.topics[0].partitions] == list(range(2, 22))


def test_columns_of_fewer_partitions_leave_the_others_as_they_are(
    wide: CoordinatorHarness,
) -> None:
    for first, count in ((0, 40), (100, 40), (200, 20)):
        wide.ask("offset_commit", bulk(first, count), 8)
    answer = wide.fetch().answer
    found = [one.committed_offset for one in answer.topics[0].partitions]
    assert found == [*range(200, 220), *range(120, 140)]


def test_each_commit_of_several_topics_is_served_under_the_offset_of_its_record(
    wide: CoordinatorHarness,
) -> None:
    for first in (0, 100):
        request = bulk(first, 20)
        request.topics = [*request.topics, *bulk(first, 30, "narrow").topics]
        wide.ask("offset_commit", request, 8)
    assert rows_of(wide) == 50
    committed = wide.group().offsets.committed
    for record in wide.log.records(G)[-50:]:
        about = parse_key(record.key or b"")
        assert isinstance(about, OffsetKey)
        commit = committed[about.topic, about.partition]
        assert (commit.record_offset, commit.offset) == (record.offset, 100 + about.partition)


@pytest.mark.parametrize("version", range(2, 10))
def test_the_records_of_a_bulk_commit_are_those_of_single_ones(
    wide: CoordinatorHarness, make_harness: Any, version: int
) -> None:
    single = make_harness()
    single.topics.counts |= {"wide": 3000}
    wide.ask("offset_commit", bulk(5, 300), version)
    for index in range(300):
        single.commit(5 + index, topic="wide", index=index, version=version)
    records = [
        [(record.key, record.value) for record in harness.log.records(G)]
        for harness in (wide, single)
    ]
    assert records[0] == records[1]
    assert len(wide.log.appends) == 1


def test_a_commit_that_is_too_large_for_a_batch_is_refused_and_changes_nothing(
    wide: CoordinatorHarness,
) -> None:
    wide.ask("offset_commit", bulk(0, 100), 8)
    wide.log.bytes_max = 3000
    answer = wide.ask("offset_commit", bulk(50, 100), 8).answer
    codes = {one.error_code for one in answer.topics[0].partitions}
    assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert wide.committed(topic="wide", index=99) == 99
    assert wide.group().offsets.is_settled
