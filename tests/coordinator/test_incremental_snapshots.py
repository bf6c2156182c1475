"""Increments: what came since a whole snapshot, in a file of its own.

Source: docs/spec/coordinator.md §3.4.1. That a load from both files and the rest of the log is the
fold over the whole log is in test_standby_model.py and tests/replication/test_offsets_snapshots.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.storage.cooperative import at_once
from barnabas.coordinator import incremental_capture, incremental_snapshot, standby_snapshots
from barnabas.coordinator.group_folding import GroupFolding
from barnabas.coordinator.incremental_capture import capture_increment
from barnabas.coordinator.incremental_snapshot import (
    Applying,
    Gathering,
    IncrementHeader,
    OldKey,
    frames_of,
    sealed,
)
from barnabas.coordinator.ports import INCREMENT, SNAPSHOT
from barnabas.coordinator.replay import OLD_KEY, Replay
from barnabas.coordinator.snapshot import Body
from barnabas.coordinator.snapshot_files import Captured, capture, saved, write
from barnabas.coordinator.standby_state import StandbyState
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.offsets_topic import offset_key, offset_value, old_offset_key
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.latest_by_key import Latest
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of, partition_of
from tests.coordinator.memory_log import MemoryLog, MemoryPartition, MemoryReplica
from tests.coordinator.offsets_model import content, folded
from tests.coordinator.test_loading import TickingLoop
from tests.sim.simulated_loop import SimulatedLoop

G = partition_of("g")

PLAIN = offset_value(7, 0, "", 1)
VALUES = (None, b"", b"v", b"vw", PLAIN, offset_value(8, 0, "note", 1), PLAIN[:-1])
KEYS = st.binary(min_size=1, max_size=5).filter(lambda key: key[:2] != OLD_KEY) | st.builds(
    offset_key, st.sampled_from("gh"), st.sampled_from(["", "orders"]), st.integers(0, 30)
)
LATEST = st.dictionaries(
    KEYS, st.tuples(st.integers(0, (1 << 63) - 1), st.sampled_from(VALUES)), max_size=40
)


def read(data: bytes) -> Latest:
    """The body of a file, in pieces."""
    gathering = Gathering()
    for start in range(0, len(data), 7):
        for _ in gathering.feed(data[start : start + 7]):
            pass
    assert gathering.is_between_frames
    return gathering.latest


@pytest.mark.parametrize("a_frame", [1, 3, 1024])
@given(latest=LATEST)
def test_what_is_written_is_read(latest: Latest, a_frame: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_snapshot, "FRAME_RECORDS_MAX", a_frame)
        assert read(b"".join(frames_of(latest))) == latest


def test_a_file_is_as_it_is_drawn() -> None:
    key = offset_key("g", "orders", 5)
    header = IncrementHeader(leader_epoch=7, log_start=1, offset=9, base=3, base_crc=5)
    data = sealed(header, list(frames_of({b"k": (4, b"vw"), b"l": (8, None), key: (6, PLAIN)})))
    assert data[:10].hex() == "4f464653494e43000001"
    assert data[10:42].hex() == "00000007" + f"{1:016x}" + f"{9:016x}" + f"{3:016x}" + f"{5:08x}"
    body = data[incremental_snapshot.HEADER_BYTES :]
    first = f"{1:08x}{0:08x}{1:08x}{2:08x}{4:016x}" + b"kvw".hex()
    second = f"{1:08x}{0:08x}{1:08x}ffffffff{8:016x}" + b"l".hex()
    third = f"{1:08x}{13:08x}{4:08x}{24:08x}" + key[:-4].hex() + f"{6:016x}{5:08x}" + PLAIN.hex()
    assert body.hex() == f"{27:08x}" + first + f"{25:08x}" + second + f"{65:08x}" + third
    assert IncrementHeader.parse(data).body_bytes == len(body)


NUMBERS = st.integers(0, 5) | st.integers(0, (1 << 32) - 1)
FRAMES = st.builds(
    lambda numbers, rest: b"".join(number.to_bytes(4, "big") for number in numbers) + rest,
    st.lists(NUMBERS, max_size=5),
    st.binary(max_size=80),
)


@pytest.mark.parametrize("reader", [Gathering, lambda: Applying(Replay())])
@given(frame=FRAMES)
def test_any_other_frame_is_refused_before_memory_is_taken(
    reader: Callable[[], Body], frame: bytes
) -> None:
    body = reader()
    with suppress(CorruptRecords):
        body.take(frame)
        records = body.latest if isinstance(body, Gathering) else {}
        assert sum(len(key or b"") for key in records) <= len(frame)


def test_a_frame_with_a_long_start_of_many_keys_is_refused() -> None:
    """A megabyte would become a hundred gigabytes."""
    count, start = 1 << 15, 1 << 19
    head = b"".join(number.to_bytes(4, "big") for number in (count, start, 4, 24))
    with pytest.raises(CorruptRecords):
        Gathering().take(head + bytes(start + count * (8 + 4 + 24)))


@given(latest=LATEST, other=st.integers(0, 400), bit=st.integers(0, 7))
def test_a_body_that_is_not_what_was_written_is_applied_or_refused(
    latest: Latest, other: int, bit: int
) -> None:
    """Its checksum is right: somebody means it. Nothing else than CorruptRecords may come out."""
    data = bytearray(b"".join(frames_of(latest)))
    if not data:
        return
    data[other % len(data)] ^= 1 << bit
    applying = Applying(Replay())
    with suppress(CorruptRecords, CorruptRequest):
        at_once(applying.feed(bytes(data)))
        at_once(applying.replay.apply_deferred())


def test_keys_of_version_0_are_not_kept() -> None:
    """They stand for the same offsets as others, and the later one of the two counts."""
    with pytest.raises(OldKey):
        list(frames_of({old_offset_key("g", "orders", 1): (1, PLAIN)}))


def test_a_record_without_a_key_is_not_kept() -> None:
    with pytest.raises(CorruptRecords):
        list(frames_of({None: (3, b"value")}))


# -- beside a log ------------------------------------------------------------------------------


class Kept:
    """A followed partition, and what is kept beside it."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(1)
        self.log = MemoryLog(self.loop)
        self.hosted: MemoryPartition = self.log.partition(G)
        replica = self.log.replica(G)
        assert replica is not None
        self.replica: MemoryReplica = replica

    def append(self, *offsets: int, group: str = "g", epoch: int = 0) -> None:
        pairs = [
            (offset_key(group, "orders", offset % 5), offset_value(offset, 0, "", 1))
            for offset in offsets
        ]
        self.hosted.follow(build_batch(pairs, timestamp_ms=1), epoch)
        self.hosted.follow_mark(self.hosted.end)

    def append_transaction(self) -> None:
        pairs = [(offset_key("g", "orders", 1), offset_value(99, 0, "", 1))]
        fields = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        self.hosted.follow(build_batch(pairs, timestamp_ms=1, base_sequence=0, **fields))  # type: ignore[arg-type]
        marker = encode_marker(Marker.COMMIT, 0)
        self.hosted.follow(build_batch([marker], timestamp_ms=1, is_control=True, **fields))  # type: ignore[arg-type]
        self.hosted.follow_mark(self.hosted.end)

    def state(self) -> StandbyState[Replay]:
        state = StandbyState(self.replica, GroupFolding(lambda: 0))
        for _ in state.advance(is_to_end=True):
            pass
        return state

    def save_whole(self) -> None:
        self.save(capture(self.state()))

    def save_increment(self) -> None:
        self.save(capture_increment(self.replica))

    def save(self, steps: Generator[None, None, Captured | None]) -> None:
        captured = finished(steps)
        assert captured is not None
        self.loop.run_until_complete(write(self.replica, captured))

    def check(self, read_again: int) -> None:
        """A load is the fold over the log, and reads so many of its records."""
        state = self.state()
        assert content(state.fold) == folded(self.hosted.batches, self.hosted.end)
        assert state.fold.count == read_again


def finished(steps: Generator[None, None, Captured | None]) -> Captured | None:
    """What a generator returns."""
    return at_once(steps)


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.loop.close()


def test_a_load_reads_the_snapshot_the_increment_and_what_follows(kept: Kept) -> None:
    kept.append(1, 2, 3)
    kept.save_whole()
    kept.append(4, 5, 6, 7)
    kept.save_increment()
    kept.append(8)
    kept.check(read_again=1)


def test_an_increment_needs_no_snapshot_and_no_settled_offsets(kept: Kept) -> None:
    kept.append(1, 2, 3)
    kept.save_increment()
    assert set(kept.hosted.files) == {INCREMENT}
    kept.append(4)
    kept.check(read_again=1)


def test_an_increment_goes_on_from_the_one_before(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.append(1, 2, 3)
    kept.save_increment()
    kept.append(4, 5)
    reads: list[int] = []
    original = MemoryPartition.read

    def read(self: MemoryPartition, offset: int, bytes_max: int) -> bytes:
        reads.append(offset)
        return original(self, offset, bytes_max)

    monkeypatch.setattr(MemoryPartition, "read", read)
    kept.save_increment()
    assert reads == [3]
    kept.check(read_again=0)


def test_what_is_not_committed_is_not_in_an_increment(kept: Kept) -> None:
    kept.append(1, 2)
    pairs = [(offset_key("g", "orders", 1), offset_value(50, 0, "", 1))]
    kept.hosted.follow(build_batch(pairs, timestamp_ms=1))
    kept.save_increment()
    assert saved(kept.replica).offset == 2
    kept.check(read_again=1)


@pytest.mark.parametrize(
    "value", [offset_value(50, 0, "", 1), None], ids=["a commit", "a tombstone"]
)
def test_what_was_never_committed_and_is_cut_is_not_in_an_increment(
    kept: Kept, value: bytes | None
) -> None:
    kept.append(1)
    kept.append(2)
    pairs = [(offset_key("g", "orders", 1), value)]
    kept.hosted.follow(build_batch(pairs, timestamp_ms=1))
    kept.save_increment()
    kept.hosted.truncate(2)
    kept.append(3, epoch=1)
    kept.check(read_again=1)


def test_a_commit_acknowledged_after_a_cut_is_served(kept: Kept) -> None:
    for offset in (100, 900, 901):  # the first is committed, what follows is on its way
        pairs = [(offset_key("g", "orders", 0), offset_value(offset, 0, "", 1))]
        kept.hosted.follow(build_batch(pairs, timestamp_ms=1))
    kept.hosted.follow_mark(1)
    kept.save_increment()
    kept.hosted.truncate(1)
    with closing(CoordinatorHarness(loop=kept.loop, log=kept.log, is_elected=False)) as harness:
        harness.elect(G, 1)
        harness.turn(50)
        assert harness.committed() == 100
        assert codes_of(harness.commit(101)) == [ErrorCode.NONE]
        assert harness.committed() == 101


def test_a_new_snapshot_ends_the_increment(kept: Kept) -> None:
    kept.append(1, 2, 3)
    kept.save_increment()
    kept.append(4)
    kept.save_whole()
    assert set(kept.hosted.files) == {SNAPSHOT}
    kept.check(read_again=0)


def test_an_increment_of_another_snapshot_is_not_used(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    """A node of 0.1.0 wrote a snapshot and knew nothing of the file beside it."""
    kept.append(1, 2, 3)
    kept.save_whole()
    kept.append(4)
    kept.save_increment()
    old = kept.hosted.files[INCREMENT]
    kept.append(5, 6)
    kept.save_whole()
    kept.hosted.files[INCREMENT] = old
    kept.append(7)
    caplog.clear()
    kept.check(read_again=1)
    assert set(kept.hosted.files) == {SNAPSHOT}
    assert not caplog.records


def test_an_increment_of_a_lost_snapshot_is_not_used(kept: Kept) -> None:
    kept.append(1, 2, 3)
    kept.save_whole()
    kept.append(4)
    kept.save_increment()
    del kept.hosted.files[SNAPSHOT]
    kept.check(read_again=4)


def test_a_flipped_bit_costs_one_warning_and_the_log_is_read(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.append(1, 2, 3)
    kept.save_whole()
    kept.append(4, 5)
    kept.save_increment()
    whole = kept.hosted.files[INCREMENT]
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        kept.hosted.files[INCREMENT] = bytes(data)
        caplog.clear()
        kept.check(read_again=2)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert set(kept.hosted.files) == {SNAPSHOT}


@pytest.mark.parametrize("missing", [1, 10, 60])
def test_a_file_that_was_cut_short_is_not_used(kept: Kept, missing: int) -> None:
    kept.append(1, 2, 3)
    kept.save_increment()
    kept.hosted.files[INCREMENT] = kept.hosted.files[INCREMENT][:-missing]
    kept.check(read_again=3)
    assert not kept.hosted.files


def test_an_increment_above_a_cut_goes_and_the_snapshot_below_stays(kept: Kept) -> None:
    kept.append(1, 2, 3)
    kept.save_whole()
    kept.append(4)
    kept.append(5)
    kept.save_increment()
    kept.hosted.truncate(4)
    kept.append(6, epoch=1)
    kept.check(read_again=2)
    assert set(kept.hosted.files) == {SNAPSHOT}


@pytest.mark.parametrize("keeps", [0, 3, 4])
def test_a_cut_while_an_increment_is_made_leaves_none(kept: Kept, keeps: int) -> None:
    """Also where the log has grown to the same length again, with another history."""
    kept.append(1, 2, 3)
    kept.append(4)
    for number in range(300):
        kept.append(number)
    steps = capture_increment(kept.replica)
    next(steps)
    end = kept.hosted.end
    kept.hosted.truncate(keeps)
    while kept.hosted.end < end:
        kept.append(77, epoch=1)
    captured = finished(steps)
    if captured is not None:
        kept.loop.run_until_complete(write(kept.replica, captured))
    kept.check(read_again=0 if kept.hosted.files else kept.hosted.end)


def test_what_compaction_may_have_dropped_is_read_from_the_log(kept: Kept) -> None:
    kept.append(1, 2, 3)
    kept.save_increment()
    kept.append(4)
    kept.hosted.cleaned = 4
    kept.check(read_again=4)
    assert not kept.hosted.files


# -- when --------------------------------------------------------------------------------------


def stopped(harness: CoordinatorHarness) -> set[str]:
    """Which files a stop leaves beside the partition of group ``g``."""
    harness.loop.run_until_complete(harness.coordinator.save())
    return set(harness.log.partition(G).files)


@pytest.fixture
def eager(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    """A node that thinks two records worth a file."""
    harness = make_harness()
    harness.coordinator.standbys.tail_min = 2
    return harness


def test_a_stop_writes_what_came_since_the_snapshot(eager: CoordinatorHarness) -> None:
    hosted = eager.log.partition(G)
    eager.coordinator.standbys.tail_max = 10
    for offset in range(10):
        eager.commit(offset)
    eager.wait(standby_snapshots.CHECK_LED_S + 1)
    whole = hosted.snapshot
    assert whole is not None
    eager.commit(10)
    eager.commit(11)
    assert stopped(eager) == {SNAPSHOT, INCREMENT}
    assert hosted.snapshot is whole
    eager.reload()
    assert eager.committed() == 11


def test_a_stop_writes_nothing_where_little_came_since_the_increment(
    eager: CoordinatorHarness,
) -> None:
    hosted = eager.log.partition(G)
    eager.commit(1)
    eager.commit(2)
    assert stopped(eager) == {INCREMENT}
    before = hosted.files[INCREMENT]
    eager.coordinator.standbys._is_stopping = False
    eager.commit(3)
    stopped(eager)
    assert hosted.files[INCREMENT] is before


def test_a_stop_writes_a_whole_snapshot_where_there_were_transactions(
    eager: CoordinatorHarness,
) -> None:
    hosted = eager.log.partition(G)
    pairs = [(offset_key("g", "orders", 1), offset_value(99, 0, "", 1))] * 2
    fields = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    data = build_batch(pairs, timestamp_ms=1, base_sequence=0, **fields)  # type: ignore[arg-type]
    batch.assign(data, 0, 0)
    hosted.append(data)
    eager.log.replicate(G)
    assert stopped(eager) == {SNAPSHOT}


def test_a_stop_writes_a_whole_snapshot_where_an_increment_would_be_long(
    eager: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental_capture, "KEYS_MAX", 2)
    for index in range(4):
        eager.commit(1, index=index)
    assert stopped(eager) == {SNAPSHOT}


def test_an_increment_is_bounded_in_bytes(
    eager: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental_capture, "BYTES_MAX", 60)
    eager.commit(1, metadata="m" * 50)
    eager.commit(2, metadata="m" * 50, index=1)
    assert stopped(eager) == {SNAPSHOT}


def test_a_leader_of_many_offsets_writes_increments_between_its_snapshots(
    eager: CoordinatorHarness,
) -> None:
    """What a kill makes the next start read is then less than twice what is kept."""
    standbys, hosted = eager.coordinator.standbys, eager.log.partition(G)
    standbys.tail_max = 4
    for index in range(4):
        for offset in range(2):
            eager.commit(offset, index=index)
    eager.wait(standby_snapshots.CHECK_LED_S + 1)
    assert set(hosted.files) == {SNAPSHOT}
    for offset in range(4):
        eager.commit(offset)
    eager.wait(standby_snapshots.CHECK_LED_S + 1)
    assert set(hosted.files) == {SNAPSHOT, INCREMENT}
    eager.reload()
    assert eager.committed() == 3


def test_a_partition_that_a_snapshot_makes_short_is_loaded_first(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    loop = TickingLoop()
    log = MemoryLog(loop)
    other = (G + 1) % 4
    for index, count in ((G, 8), (other, 4)):
        for start in range(count):
            pairs = [
                (offset_key(f"group {number}", "orders", 0), offset_value(start, 0, "", 1))
                for number in range(1000)
            ]
            log.partition(index).append(build_batch(pairs, timestamp_ms=1))
        log.replicate(index)
    replica = log.replica(G)
    assert replica is not None
    captured = at_once(capture_increment(replica))
    assert captured is not None
    loop.run_until_complete(write(replica, captured))
    harness = make_harness(loop=loop, log=log)
    first: list[int] = []
    while not first:
        harness.turn(1)
        terms = harness.coordinator.registry.terms()
        first = [term.partition for term in terms if term.groups]
    assert first == [G]


def test_no_snapshot_is_written_while_a_partition_loads(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    """Nobody waits for a snapshot, and groups wait for their load."""
    loop = SimulatedLoop(1)
    log = MemoryLog(loop)
    other = (G + 1) % 4
    pairs = [(offset_key("any", "orders", 0), offset_value(1, 0, "", 1))]
    log.partition(other).append(build_batch(pairs, timestamp_ms=1))
    harness = make_harness(loop=loop, log=log)
    harness.coordinator.standbys.tail_max = 1
    for offset in range(4):
        harness.commit(offset)
    assert harness.coordinator.registry.is_loading
    harness.wait(3 * standby_snapshots.CHECK_LED_S)
    assert not log.partition(G).files
    log.replicate(other)
    harness.wait(2 * standby_snapshots.CHECK_LED_S)
    assert log.partition(G).files
