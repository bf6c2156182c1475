"""Taking over a partition: everything or nothing, and in slices.

Source: docs/spec/coordinator.md §3.3 to §3.5; §1.10 checks C1.4, C2.2, C2.3, C3.3, C3.4, C3.6, C3.8
and C9.5, and the fold of C3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.loader import SLICE_S
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.offsets_topic import (
    group_key,
    offset_key,
    offset_value,
    old_offset_key,
)
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of, partition_of
from tests.coordinator.memory_log import MemoryLog
from tests.sim.simulated_loop import SimulatedLoop

G = partition_of("g")
Pair = tuple[bytes | None, bytes | None]


def value(offset: int) -> bytes:
    return offset_value(offset, -1, "", 1_795_219_200_000)


def key(index: int = 0, group: str = "g") -> bytes:
    return offset_key(group, "orders", index)


class OldLog:
    """A partition as somebody else left it; the coordinator that is elected on it comes later."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(1)
        self.log = MemoryLog(self.loop)
        self.partition = self.log.partition(G)

    def write(self, *pairs: Pair, **fields: int | bool) -> None:
        data = build_batch(pairs, timestamp_ms=1, **fields)  # type: ignore[arg-type]
        self.partition.append(data)
        self.partition.high_watermark = self.partition.end

    def end_transaction(self, producer_id: int, marker: Marker) -> None:
        self.write(
            encode_marker(marker, 0),
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )

    def transactional(self, producer_id: int, *pairs: Pair) -> None:
        self.write(
            *pairs,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )


@pytest.fixture
def old() -> OldLog:
    return OldLog()


@pytest.fixture
def take_over(
    make_harness: Callable[..., CoordinatorHarness], old: OldLog
) -> Callable[[], CoordinatorHarness]:
    return lambda: make_harness(loop=old.loop, log=old.log)


def test_the_last_of_commit_tombstone_commit_is_served(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((key(), value(1)))
    old.write((key(), None), (key(1), value(5)))
    old.write((key(), value(3)), (key(1), None))
    harness = take_over()
    assert harness.committed() == 3
    assert harness.committed(index=1) == -1


def test_an_open_transaction_is_not_served_and_unstable(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((key(), value(1)))
    old.transactional(7, (key(), value(2)), (key(2), value(9)))
    harness = take_over()
    assert harness.committed() == 1
    asked = harness.fetch(topics={"orders": [0, 1, 2]}, is_stable=True)
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert codes_of(asked) == [unstable, ErrorCode.NONE, unstable]


@pytest.mark.parametrize(("marker", "served"), [(Marker.COMMIT, 2), (Marker.ABORT, 1)])
def test_a_marker_decides_what_a_transaction_staged(
    old: OldLog, take_over: Callable[[], CoordinatorHarness], marker: Marker, served: int
) -> None:
    old.write((key(), value(1)))
    old.transactional(7, (key(), value(2)))
    old.transactional(8, (key(1), value(5)))
    old.end_transaction(7, marker)
    harness = take_over()
    assert harness.committed() == served
    assert codes_of(harness.fetch(topics={"orders": [0]}, is_stable=True)) == [ErrorCode.NONE]


def test_a_plain_commit_after_a_transactional_one_stays_when_the_marker_comes(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.transactional(7, (key(), value(8)))
    old.write((key(), value(10)))
    old.end_transaction(7, Marker.COMMIT)
    assert take_over().committed() == 10


def test_a_removed_group_whose_name_was_used_again_for_offsets_loads(  # KAFKA-4704
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((group_key("g"), None), (key(), value(4)))
    harness = take_over()
    assert harness.committed() == 4
    assert harness.group().protocol_type is None


def test_keys_of_later_versions_are_skipped(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((b"\0\x63\0\1g", b"anything"), (key(), value(4)))
    assert take_over().committed() == 4


def test_bytes_behind_a_known_value_are_ignored(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((key(), value(4) + b"more"))
    assert take_over().committed() == 4


@pytest.mark.parametrize(
    "pair",
    [
        (key(), b"\0\x09garbage"),
        (key(), b"\0\3cut"),
        (group_key("g"), b"\0\3\0"),
        (None, value(1)),
    ],
    ids=["unknown value version", "value cut short", "group cut short", "no key"],
)
def test_a_log_that_cannot_be_read_whole_is_not_served_at_all(
    old: OldLog, take_over: Callable[[], CoordinatorHarness], pair: Pair
) -> None:
    old.write((key(1), value(1)))
    old.write(pair)
    harness = take_over()
    assert harness.fetch(topics={"orders": [1]}).code is ErrorCode.NOT_COORDINATOR


def test_a_batch_with_a_wrong_checksum_is_not_served(
    old: OldLog, take_over: Callable[[], CoordinatorHarness], caplog: pytest.LogCaptureFixture
) -> None:
    old.write((key(), value(1)))
    old.partition.batches[0][-1] ^= 1
    assert take_over().fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    assert "checksum" in caplog.text


def test_one_bad_partition_does_not_hold_up_the_others(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((key(), b"bad"))
    harness = take_over()
    other = next(name for name in "abcdefgh" if partition_of(name) != G)
    assert codes_of(harness.commit(1, group=other)) == [ErrorCode.NONE]


def test_a_failed_load_is_tried_again_until_it_works(harness: CoordinatorHarness) -> None:
    harness.commit(5)
    harness.log.read_fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    harness.reload()
    harness.wait(20)
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    harness.log.read_fails_with = None
    harness.wait(10.1)
    assert harness.committed() == 5


def test_a_read_that_gives_nothing_below_the_end_fails_instead_of_going_on_for_ever(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:  # KAFKA-9065
    old.write((key(), value(1)))
    old.partition.end += 5
    harness = take_over()
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR


def test_gaps_and_batches_without_their_last_records_do_not_stall_the_loader(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:  # KAFKA-5413, KAFKA-9065
    old.write((key(), value(1)))
    old.partition.end += 1000  # compacted away
    gap = build_batch([(key(1), value(2))], timestamp_ms=1)
    old.partition.append(gap)
    old.partition.high_watermark = old.partition.end
    harness = take_over()
    assert (harness.committed(), harness.committed(index=1)) == (1, 2)


def test_a_log_that_was_trimmed_is_read_from_its_start(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((key(), value(1)))
    old.write((key(1), value(2)))
    del old.partition.batches[0]
    old.partition.start = 1
    harness = take_over()
    assert (harness.committed(), harness.committed(index=1)) == (-1, 2)


def test_a_load_of_many_reads_misses_nothing(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:  # KAFKA-5600
    harness = make_harness(load_buffer_bytes=1)
    for offset in range(50):
        harness.commit(offset, index=offset % 4)
    harness.reload()
    harness.wait(1)
    assert [harness.committed(index=index) for index in range(4)] == [48, 49, 46, 47]


def test_a_bug_while_loading_is_a_failed_load_and_not_the_end_of_the_loader(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object) -> bytes:
        raise RuntimeError("planted")

    harness.commit(1)
    with monkeypatch.context() as patched:
        patched.setattr(harness.log.partition(G), "read", explode)
        harness.reload()
        assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    assert "planted" in caplog.text
    harness.wait(10)
    assert harness.committed() == 1


def test_a_marker_of_a_kind_nobody_knows_is_skipped(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.transactional(7, (key(), value(2)), (key(1), value(3)), (key(1), None))
    old.transactional(8, (key(2), value(2)), (key(2), None))
    old.write((b"\0\0\0\7", b"\0\0\0\0\0\0"), is_transactional=True, is_control=True)
    harness = take_over()
    assert harness.committed() == -1
    asked = harness.fetch(topics={"orders": [0, 1, 2]}, is_stable=True)
    unstable, none = ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE
    assert codes_of(asked) == [unstable, none, none]


def test_compressed_batches_are_loaded(make_harness: Callable[..., CoordinatorHarness]) -> None:
    harness = make_harness(offsets_compression_codec=3)
    harness.commit(5, metadata="x" * 1000)
    harness.reload()
    assert harness.committed() == 5


# -- slices ----------------------------------------------------------------------------------


class TickingLoop(SimulatedLoop):
    """Looking at the clock takes a tenth of a millisecond."""

    def __init__(self) -> None:
        super().__init__(1)
        self.looks = 0

    def time(self) -> float:
        self.looks += 1
        return super().time() + self.looks * 0.0001


def test_others_run_while_a_large_partition_loads(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    loop = TickingLoop()
    log = MemoryLog(loop)
    pairs = [(key(index, f"group {index}"), value(index)) for index in range(20_000)]
    for start in range(0, len(pairs), 5000):
        log.partition(G).append(build_batch(pairs[start : start + 5000], timestamp_ms=1))
    log.replicate(G)
    harness = make_harness(loop=loop, log=log)
    gaps = []

    async def neighbour() -> None:
        while harness.coordinator.registry.is_loading:
            before = loop.looks
            await asyncio.sleep(0)
            gaps.append((loop.looks - before) * 0.0001)

    loop.run_until_complete(neighbour())
    assert len(gaps) > 20
    # the loop itself looks at the clock too
    assert max(gaps) < 1.5 * SLICE_S
    assert len(harness.coordinator.registry.groups) == 20_000


# -- old keys and the fold -------------------------------------------------------------------


def test_an_offset_under_an_old_key_is_erased_under_both_keys(
    old: OldLog, take_over: Callable[[], CoordinatorHarness]
) -> None:
    old.write((old_offset_key("g", "orders", 0), value(4)))
    harness = take_over()
    assert harness.committed() == 4
    harness.coordinator.topics_deleted(["orders"])
    harness.turn()
    erased = {record.key for record in harness.log.records(G) if record.value is None}
    assert erased == {key(), old_offset_key("g", "orders", 0)}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 99)),
        st.tuples(st.just("old put"), st.integers(0, 3), st.integers(0, 99)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("txn put"), st.integers(0, 3), st.integers(0, 99)),
        st.tuples(st.just("commit"), st.just(0), st.just(0)),
        st.tuples(st.just("abort"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, buffer_bytes=st.sampled_from([1, 200, 5_000_000]))
def test_the_cache_after_a_load_is_the_fold_over_the_log(
    steps: list[tuple[str, int, int]], buffer_bytes: int
) -> None:
    old = OldLog()
    model: dict[int, int] = {}
    order: dict[int, int] = {}
    staged: dict[int, tuple[int, int]] = {}
    for number, (step, index, offset) in enumerate(steps):
        if step == "put" or step == "old put":
            chosen = key(index) if step == "put" else old_offset_key("g", "orders", index)
            old.write((chosen, value(offset)))
            model[index], order[index] = offset, number
        elif step == "drop":
            old.write((key(index), None))
            model.pop(index, None)
            order.pop(index, None)
            staged.pop(index, None)
        elif step == "txn put":
            old.transactional(7, (key(index), value(offset)))
            staged[index] = (offset, number)
        else:
            old.end_transaction(7, Marker.COMMIT if step == "commit" else Marker.ABORT)
            for index, (offset, written) in staged.items():
                if step == "commit" and order.get(index, -1) < written:
                    model[index], order[index] = offset, written
            staged.clear()
    harness = CoordinatorHarness(loop=old.loop, log=old.log, load_buffer_bytes=buffer_bytes)
    harness.wait(1)
    served = {index: harness.committed(index=index) for index in range(4)}
    harness.close()
    assert served == {index: model.get(index, -1) for index in range(4)}
