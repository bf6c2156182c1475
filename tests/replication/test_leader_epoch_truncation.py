"""Two logs that parted ways agree again, whatever the epochs were: the vectors of
docs/spec/cluster.md §3.5.

docs/spec/cluster.md §3.11 checks R4 and R5; docs/spec/cluster.md §6 pitfalls 10 to 13.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers.follower_fetch import divergence
from barnabas.broker.replication import fetch_response, leader_epoch_truncation
from barnabas.broker.replication.fetch_response import NextStep
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch
from barnabas.protocol.records import batch
from tests.replication.logs import FakePartitionContext, ManualLogManager, a_batch

ROUNDS_MAX = 20

Epochs = Mapping[int, int]
"""Start offset by epoch."""


@pytest.fixture
async def shelves(tmp_path: Path) -> AsyncIterator[tuple[ManualLogManager, ManualLogManager]]:
    both = ManualLogManager(tmp_path / "leader"), ManualLogManager(tmp_path / "follower")
    for shelf in both:
        await shelf.load()
    yield both
    for shelf in both:
        await shelf.close()


def replica(shelf: ManualLogManager, epochs: Epochs, end: int, *, topic: str = "t") -> Partition:
    """A replica whose epoch cache is ``epochs`` and whose log ends at ``end``."""
    log = shelf.create(topic, 0, None)
    starts = sorted(epochs.items())
    for number, (epoch, start) in enumerate(starts):
        assert log.end_offset == start
        log.assign_epoch(epoch, start)
        until = starts[number + 1][1] if number + 1 < len(starts) else end
        while log.end_offset < until:
            value = b"%d/%d" % (epoch, log.end_offset)
            log.append(a_batch(value=value), leader_epoch=epoch, is_client=True)
    assert log.end_offset == end
    assert set(log.epochs.pairs) <= set(starts)
    return Partition(topic, 0, log, 0, FakePartitionContext())


def one_round(leader: Partition, follower: Partition) -> tuple[NextStep, tuple[int, int]]:
    """One fetch; what came of it, and the offset and epoch that were asked with."""
    own = follower.log
    asked = fetch.Partition(
        partition=0,
        fetch_offset=own.end_offset,
        last_fetched_epoch=own.epochs.latest,
        partition_max_bytes=1 << 20,
    )
    result = fetch.PartitionResult(
        partition_index=0, high_watermark=leader.log.end_offset, log_start_offset=0
    )
    result.records = b""
    try:
        result.diverging_epoch = divergence(leader, asked)
        if result.diverging_epoch is None:
            result.records = leader.log.read(
                own.end_offset, bytes_max=1 << 20, end=leader.log.end_offset, at_least_one=True
            )
    except Refused as refusal:
        result.error_code = refusal.code
    return fetch_response.apply(follower, result), (asked.fetch_offset, asked.last_fetched_epoch)


def catch_up(leader: Partition, follower: Partition) -> list[tuple[int, int]]:
    """Fetch until the logs are the same; the offsets and epochs that were asked with."""
    asked = []
    for _ in range(ROUNDS_MAX):
        _, question = one_round(leader, follower)
        asked.append(question)
        if follower.log.end_offset == leader.log.end_offset and not differences(leader, follower):
            return asked
    raise AssertionError(f"no end of it: {asked}")


def differences(leader: Partition, follower: Partition) -> bool:
    contents = [
        one.log.read(0, bytes_max=1 << 20, end=one.log.end_offset, at_least_one=True)
        for one in (leader, follower)
    ]
    epochs = [one.log.epochs.latest for one in (leader, follower)]
    return contents[0] != contents[1] or epochs[1] > epochs[0]


VECTORS = {
    "a": (({0: 0, 2: 10}, 15), ({0: 0, 1: 10}, 14), [(14, 1), (10, 0)]),
    "b": (({0: 0, 1: 5, 4: 8}, 12), ({0: 0, 2: 6, 3: 9}, 11), [(11, 3), (6, 0), (5, 0)]),
    "c": (({0: 0, 2: 5}, 5), ({0: 0, 1: 5}, 5), [(5, 1)]),
    "d": (({0: 0, 1: 5}, 9), ({0: 0, 1: 5}, 7), [(7, 1)]),
}


@pytest.mark.parametrize("name", VECTORS)
async def test_a_follower_cuts_where_its_log_left_the_leaders(
    shelves: tuple[ManualLogManager, ManualLogManager], name: str
) -> None:
    (epochs, end), (own_epochs, own_end), expected = VECTORS[name]
    leader, follower = replica(shelves[0], epochs, end), replica(shelves[1], own_epochs, own_end)
    assert catch_up(leader, follower) == expected
    assert one_round(leader, follower) == (NextStep.FETCH, (end, follower.log.epochs.latest))


async def test_an_epoch_in_which_nothing_was_written_is_forgotten(
    shelves: tuple[ManualLogManager, ManualLogManager],
) -> None:
    leader = replica(shelves[0], {0: 0, 2: 5}, 5)
    follower = replica(shelves[1], {0: 0, 1: 5}, 5)
    assert one_round(leader, follower)[0] is NextStep.FETCH_AFTER_TRUNCATION
    assert follower.log.epochs.pairs == [(0, 0)]
    assert follower.log.end_offset == 5


async def test_the_watermarks_of_an_answer_that_asks_for_truncation_are_not_used(
    shelves: tuple[ManualLogManager, ManualLogManager],
) -> None:
    leader = replica(shelves[0], {0: 0, 2: 10}, 15)
    follower = replica(shelves[1], {0: 0, 1: 10}, 14)
    one_round(leader, follower)
    assert (follower.log.end_offset, follower.high_watermark) == (10, 0)
    one_round(leader, follower)
    assert (follower.log.end_offset, follower.high_watermark) == (15, 15)


async def test_a_log_that_ends_before_the_leaders_begins_begins_anew(
    shelves: tuple[ManualLogManager, ManualLogManager],
) -> None:
    leader, follower = replica(shelves[0], {0: 0}, 9), replica(shelves[1], {0: 0}, 3)
    leader.high_watermark = 9
    leader.log.advance_start(6)
    assert one_round(leader, follower)[0] is NextStep.ASK_BOUNDS
    assert leader_epoch_truncation.truncate_to_bounds(follower, 6, 9)
    assert (follower.log.start_offset, follower.log.end_offset) == (6, 6)
    assert follower.high_watermark == 6
    assert one_round(leader, follower)[0] is NextStep.FETCH
    assert follower.log.end_offset == 9


async def test_a_log_that_ends_after_the_leaders_is_cut_there(
    shelves: tuple[ManualLogManager, ManualLogManager],
) -> None:
    follower = replica(shelves[1], {0: 0}, 9)
    assert leader_epoch_truncation.truncate_to_bounds(follower, 0, 4)
    assert follower.log.end_offset == 4
    assert not leader_epoch_truncation.truncate_to_bounds(follower, 0, 4)


async def test_a_log_without_epochs_is_trusted_as_far_as_it_is_committed(
    shelves: tuple[ManualLogManager, ManualLogManager],
) -> None:
    follower = replica(shelves[1], {0: 0}, 9)
    follower.follow_high_watermark(4)
    assert not leader_epoch_truncation.prepare_to_follow(follower)
    follower.log.epochs.clear()
    assert leader_epoch_truncation.prepare_to_follow(follower)
    assert follower.log.end_offset == 4
    assert not leader_epoch_truncation.prepare_to_follow(follower)


async def test_truncating_below_the_high_watermark_is_an_error_in_the_log(
    shelves: tuple[ManualLogManager, ManualLogManager], caplog: pytest.LogCaptureFixture
) -> None:
    leader = replica(shelves[0], {0: 0, 2: 10}, 15)
    follower = replica(shelves[1], {0: 0, 1: 10}, 14)
    follower.follow_high_watermark(12)
    one_round(leader, follower)
    assert follower.high_watermark == 10
    assert "lost committed records partition=t-0 from=10 to=12" in caplog.text


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, NextStep.ASK_BOUNDS),
        (ErrorCode.FENCED_LEADER_EPOCH, NextStep.STOP),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, NextStep.WAIT),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NextStep.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NextStep.WAIT),
        (ErrorCode.KAFKA_STORAGE_ERROR, NextStep.WAIT),
    ],
)
async def test_each_error_of_a_leader_has_its_answer(
    shelves: tuple[ManualLogManager, ManualLogManager], code: ErrorCode, step: NextStep
) -> None:
    follower = replica(shelves[1], {0: 0}, 1)
    result = fetch.PartitionResult(partition_index=0, error_code=code, high_watermark=-1)
    assert fetch_response.apply(follower, result) is step


async def test_damaged_records_are_not_appended(
    shelves: tuple[ManualLogManager, ManualLogManager],
) -> None:
    leader, follower = replica(shelves[0], {0: 0}, 3), replica(shelves[1], {0: 0}, 0)
    sent = bytearray(leader.log.read(0, bytes_max=1 << 20, end=3, at_least_one=True))
    sent[-1] ^= 1
    result = fetch.PartitionResult(partition_index=0, high_watermark=3, log_start_offset=0)
    result.records = bytes(sent)
    with pytest.raises(Refused, match="CORRUPT_MESSAGE"):
        fetch_response.apply(follower, result)
    assert [batch.base_offset(sent, at) for at, _ in batch.iterate(sent)] == [0, 1, 2]
    assert (follower.log.end_offset, follower.high_watermark) == (2, 0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Epochs, int], tuple[Epochs, int]]:
    """Two logs with a common beginning; the leader has the newest epoch of all."""
    common = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    starts, at = {}, 0
    for epoch, length in enumerate(common):
        starts[epoch] = at
        at += length

    def tail(epochs: list[int]) -> tuple[Epochs, int]:
        mine, end = dict(starts), draw(st.integers(starts[len(common) - 1], at))
        for epoch in epochs:
            mine[epoch] = end
            end += draw(st.integers(0, 3))
        return mine, end

    later = draw(st.lists(st.booleans(), max_size=5))
    mine = [len(common) + number for number, is_leaders in enumerate(later) if not is_leaders]
    leaders = [len(common) + number for number, is_leaders in enumerate(later) if is_leaders]
    return tail([*leaders, len(common) + len(later)]), tail(mine)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(logs=histories())
async def test_any_two_histories_end_in_one(
    tmp_path_factory: pytest.TempPathFactory, logs: tuple[tuple[Epochs, int], tuple[Epochs, int]]
) -> None:
    """Each offset of an epoch has the same bytes in both: the value names offset and epoch."""
    shelves = [ManualLogManager(tmp_path_factory.mktemp(name)) for name in ("leader", "follower")]
    for shelf in shelves:
        await shelf.load()
    leader, follower = (replica(shelf, *log) for shelf, log in zip(shelves, logs, strict=True))
    catch_up(leader, follower)
    for shelf in shelves:
        await shelf.close()
