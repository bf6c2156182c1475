"""An offsets partition of which a batch is damaged and nobody has another copy.

All that lies outside of the damage is served; nobody is told "no offset", or an older one, whose
commit may have been in there. docs/decisions/0009.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.coordinator.damaged_records import Damage, DamagedRecords
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_groups, describe_groups, offset_delete
from barnabas.protocol.offsets_topic import (
    GroupRecord,
    MemberRecord,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.coordinator_harness import CODES, CoordinatorHarness, partition_of
from tests.coordinator.memory_log import MemoryLog
from tests.sim.simulated_loop import SimulatedLoop

P = partition_of("group-0")
NAMES = [name for name in (f"group-{index}" for index in range(1000)) if partition_of(name) == P]
SHORT = next(name for name in "abcdefghijkl" if partition_of(name) == P)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def near(one: str, other: str) -> bool:
    return sum(a != b for a, b in zip(one, other, strict=True)) < 2


# All of one length, and none a letter away from another.
A, B, C, NEW = next(
    [a, b, c, d]
    for a in NAMES[-20:]
    for b in NAMES[-20:]
    for c in NAMES[-20:]
    for d in NAMES[-20:]
    if not any(near(x, y) for x, y in [(a, b), (a, c), (a, d), (b, c), (b, d), (c, d)])
)


def offsets(group: str, *pairs: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    stamp = 1_795_219_200_000
    return [
        (offset_key(group, "orders", index), offset_value(offset, -1, "", stamp))
        for index, offset in pairs
    ]


class Damaged:
    """A partition as a node left it whose disk has turned over something since."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(1)
        self.log = MemoryLog(self.loop)
        self.partition = self.log.partition(P)
        self.partition.is_alone = True

    def write(self, pairs: Iterable[tuple[bytes, bytes | None]], producer_id: int = -1) -> None:
        self.partition.append(build_batch(list(pairs), timestamp_ms=1, producer_id=producer_id))
        self.partition.high_watermark = self.partition.end

    def flip(self, index: int, place: int, bit: int = 0) -> None:
        self.partition.batches[index][place] ^= 1 << bit


@pytest.fixture
def damaged(make_harness: Callable[..., CoordinatorHarness]) -> Damaged:
    """A committed once, B twice, C three times: then the second batch of each was damaged."""
    made = Damaged()
    made.write(offsets(A, (0, 10), (1, 11)))
    made.write([*offsets(B, (0, 20)), *offsets(C, (0, 30))])
    made.write([*offsets(B, (0, 21)), *offsets(C, (0, 31))])
    made.write(offsets(C, (0, 32)))
    return made


def start(made: Damaged, make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    harness = make_harness(loop=made.loop, log=made.log)
    harness.wait(1)
    return harness


def code(harness: CoordinatorHarness, group: str, index: int = 0) -> ErrorCode:
    found: ErrorCode = harness.fetch(group=group, topics={"orders": [index]}).code
    return found


LAST = -6
"""In the value of the last record: keys and structure are whole."""


def test_what_lies_outside_of_the_damage_is_served(
    damaged: Damaged,
    make_harness: Callable[..., CoordinatorHarness],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged.flip(2, LAST)
    harness = start(damaged, make_harness)
    assert harness.committed(group=A) == 10
    assert harness.committed(group=A, index=1) == 11
    assert harness.committed(group=C) == 32, "committed again since"
    assert harness.committed(group=NEW) == -1, "was not in there"
    assert "log repair" in caplog.text
    assert B in caplog.text


def test_a_group_whose_last_commit_may_be_damaged_is_told_neither_nothing_nor_an_older_one(
    damaged: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    damaged.flip(2, LAST)
    harness = start(damaged, make_harness)
    assert code(harness, B) is LOADING
    assert code(harness, B, index=1) is LOADING
    assert harness.fetch(group=B).code is LOADING
    assert code(harness, C, index=1) is LOADING, "another partition of it may have been in there"


def test_a_commit_ends_the_doubt_about_its_partition(
    damaged: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    damaged.flip(2, LAST)
    harness = start(damaged, make_harness)
    harness.commit(25, group=B)
    assert harness.committed(group=B) == 25
    assert code(harness, B, index=1) is LOADING


def test_damage_that_cannot_be_read_at_all_may_concern_everybody(
    damaged: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    damaged.partition.batches[2][61:] = bytes(len(damaged.partition.batches[2]) - 61)
    harness = start(damaged, make_harness)
    assert [code(harness, group) for group in (A, B, NEW, SHORT)] == [LOADING] * 4
    assert harness.committed(group=C) == 32
    harness.commit(1, group=NEW)
    assert harness.committed(group=NEW) == 1


def test_a_damaged_name_may_be_that_of_any_group_as_long(
    damaged: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    place = damaged.partition.batches[2].index(B.encode())
    damaged.flip(2, place)
    harness = start(damaged, make_harness)
    assert [code(harness, group) for group in (A, B, NEW)] == [LOADING] * 3
    assert harness.committed(group=SHORT) == -1


def test_a_flipped_bit_that_names_another_known_group_does_not_hide_the_first(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    one, other = next((a, b) for a in NAMES for b in NAMES if a != b and near(a, b))
    made = Damaged()
    made.write([*offsets(one, (0, 1)), *offsets(other, (0, 2))])
    made.write(offsets(one, (0, 3)))
    made.partition.batches[1] = bytearray(
        bytes(made.partition.batches[1]).replace(one.encode(), other.encode())
    )
    harness = start(made, make_harness)
    assert [code(harness, group) for group in (one, other)] == [LOADING] * 2


def test_a_damaged_record_of_a_group_itself_withholds_no_offset(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    made = Damaged()
    made.write(offsets(A, (0, 1)))
    made.write([(group_key(A), None)])
    made.flip(1, 20)  # the checksum itself
    harness = start(made, make_harness)
    assert harness.committed(group=A) == 1


def test_the_partition_is_not_served_while_another_replica_may_have_what_is_damaged(
    damaged: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    damaged.partition.is_alone = False
    damaged.flip(2, LAST)
    harness = start(damaged, make_harness)
    assert code(harness, A) is ErrorCode.NOT_COORDINATOR


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_in_a_batch_makes_its_groups_appear_without_offset(
    place: int, bit: int
) -> None:
    data = build_batch(
        [*offsets(B, (0, 20)), *offsets(C, (0, 30), (3, 33))], timestamp_ms=1, producer_id=7
    )
    batch.assign(data, 5, 2)
    data[place % len(data)] ^= 1 << bit
    damaged = DamagedRecords()
    damaged.add(Damage(5, 8, bytes(data)))
    damaged.loaded({A, B, C})
    assert damaged.may_concern(B)
    assert damaged.may_concern(C)


def members(group: str, *names: str, generation: int = 1) -> list[tuple[bytes, bytes]]:
    """The record of a stable group."""
    record = GroupRecord(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader=names[0],
        members=[
            MemberRecord(member_id=name, session_timeout=10_000, rebalance_timeout=60_000)
            for name in names
        ],
    )
    return [(group_key(group), group_value(record))]


@pytest.fixture
def unread_metadata(make_harness: Callable[..., CoordinatorHarness]) -> Damaged:
    """Of A the second metadata is damaged, of B there is newer, C has none and an offset."""
    made = Damaged()
    made.write([*members(A, "a-1"), *members(B, "b-1"), *offsets(A, (0, 10)), *offsets(C, (0, 30))])
    made.write([*members(B, "b-2", generation=2), *members(A, "a-2", generation=2)])
    made.write(members(B, "b-3", generation=3))
    made.flip(1, LAST)
    return made


def described(harness: CoordinatorHarness, group: str) -> tuple[ErrorCode, str]:
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    [found] = harness.ask("describe_groups", request, 4).answer.groups
    return CODES[found.error_code], found.group_state


def test_metadata_that_may_be_outdated_is_not_told(
    unread_metadata: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    harness = start(unread_metadata, make_harness)
    assert described(harness, A)[0] is LOADING
    assert described(harness, B) == (ErrorCode.NONE, "Stable"), "newer than the damage"
    assert described(harness, C) == (ErrorCode.NONE, "Empty"), "was not in there"
    assert described(harness, NEW) == (ErrorCode.NONE, "Dead")
    assert harness.committed(group=A) == 10, "its offsets were not in there"


def test_a_group_that_may_have_members_is_not_deleted(
    unread_metadata: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    harness = start(unread_metadata, make_harness)
    request = delete_groups.DeleteGroupsRequest(groups_names=[A, C])
    told = harness.ask("delete_groups", request, 1).answer.results
    assert [CODES[one.error_code] for one in told] == [LOADING, ErrorCode.NONE]
    partitions = [offset_delete.Partition(partition_index=0)]
    topics = [offset_delete.Topic(name="orders", partitions=partitions)]
    asked = offset_delete.OffsetDeleteRequest(group_id=A, topics=topics)
    assert harness.ask("offset_delete", asked, 0).code is LOADING
    assert harness.committed(group=A) == 10


def test_a_member_that_an_older_record_names_commits_nothing(
    unread_metadata: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    harness = start(unread_metadata, make_harness)
    for name, generation in (("a-1", 1), ("a-2", 2)):
        asked = harness.commit(
            99, group=A, member_id=name, generation_id_or_member_epoch=generation
        ).answer
        assert asked.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.committed(group=A) == 10


def test_who_joins_ends_the_doubt_about_the_group(
    unread_metadata: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    harness = start(unread_metadata, make_harness)
    joined = harness.join(group=A)
    harness.wait(5)
    assert joined.answer.error_code == ErrorCode.NONE
    assert described(harness, A)[0] is ErrorCode.NONE
    harness.wait(120)  # it is gone again
    assert described(harness, A) == (ErrorCode.NONE, "Empty")


def test_a_group_that_may_have_members_does_not_expire(
    unread_metadata: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    harness = start(unread_metadata, make_harness)
    group = harness.group(A)
    harness.loop.wall_shift_ms += 365 * 24 * 3_600_000
    assert harness.coordinator.expiration.sweep(group) == 0
    assert harness.coordinator.expiration.sweep(harness.group(C)) == 1
    assert harness.committed(group=A) == 10


def test_metadata_behind_structure_that_is_broken_may_be_of_every_group(
    unread_metadata: Damaged, make_harness: Callable[..., CoordinatorHarness]
) -> None:
    batches = unread_metadata.partition.batches
    batches[1][61:] = bytes(len(batches[1]) - 61)
    harness = start(unread_metadata, make_harness)
    assert [described(harness, group)[0] for group in (A, C, NEW)] == [LOADING] * 3
    assert described(harness, B) == (ErrorCode.NONE, "Stable")
