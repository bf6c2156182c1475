"""Snapshots of offsets beside real logs: with the log's tail they are the fold over the whole log.

Source: docs/spec/coordinator.md §3.4.1; §3.9 checks C3.9. Power goes between any two changes of the
disk.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.replication.state_replica import StateReplica
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.checkpoints import format_offsets
from barnabas.broker.storage.compaction.cleaner_checkpoints import CLEANED
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log_manager import LogManager
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group_folding import GroupFolding
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.ports import INCREMENT, OFFSETS_TOPIC, SNAPSHOT
from barnabas.coordinator.replay import Replay
from barnabas.coordinator.snapshot_files import capture, write
from barnabas.coordinator.standby_snapshots import GroupStandbys
from barnabas.coordinator.standby_state import StandbyState
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.offsets_model import Folded, content, folded
from tests.replication.logs import NOW_MS, hosting, lead
from tests.sim.simulated_loop import SimulatedLoop
from tests.storage.simulated import in_simulated_time
from tests.storage.stopping_files import Died, StoppingFiles, copied, cut

HOME = Path("/data")
LIVES = 6
KINDS = (SNAPSHOT, INCREMENT)


class NodeLife:
    """One life of a node that leads one offsets partition alone."""

    def __init__(self, disk: StoppingFiles, epoch: int) -> None:
        self.disk = disk
        self.epoch = epoch
        self.logs = LogManager(
            disk,
            [HOME],
            LogConfig(),
            lambda topic: {"segment.bytes": "700", "cleanup.policy": "compact"},
            lambda: NOW_MS,
            intervals=StorageSettings(),
            random=Random(1),
        )

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        await self.logs.load()
        replicas = hosting(self.logs, lambda *_: True)
        port = StateLogPort(replicas, OFFSETS_TOPIC, loop, files=self.disk)
        lead(replicas, OFFSETS_TOPIC, 0, epoch=self.epoch)
        partition, replica = replicas.get(OFFSETS_TOPIC, 0), port.replica(0)
        assert partition is not None
        assert replica is not None
        self.partition: Partition = partition
        self.replica: StateReplica = replica
        directory = GroupRegistry()
        directory.start(1)
        term = directory.elected(0, self.epoch)
        assert term is not None
        directory.install(term, ())
        self.standbys = GroupStandbys(
            port, directory, GroupFolding(lambda: 0), CoordinatorConfig(), loop
        )
        self.standbys.tail_min = 1

    def write(self, rng: Random, count: int = 3) -> None:
        pairs: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            key = offset_key(rng.choice("abc"), "orders", rng.randrange(3))
            number = rng.randrange(100)
            pairs.append((key, offset_value(number, 0, "", 1) if number > 20 else None))
        self.partition.append(build_batch(pairs, timestamp_ms=1), acks=1, is_client=False)

    async def do_something(self, rng: Random) -> None:
        what = rng.choice(["write"] * 6 + ["flush", "save", "whole", "points"])
        if what == "write":
            self.write(rng)
        elif what == "flush":
            await self.partition.log.flush()
        elif what == "save":
            try:
                await self.standbys.save()
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None  # the crash, out of the task that met it
        elif what == "whole":
            await self.save_whole()
        else:
            await self.logs.write_recovery_points()

    async def save_whole(self) -> None:
        """As when a segment was rolled; a stop writes increments of this log."""
        captured = at_once(capture(self.state()))
        if captured is not None:
            await write(self.replica, captured)

    def state(self) -> StandbyState[Replay]:
        state = StandbyState(self.replica, GroupFolding(lambda: 0))
        at_once(state.advance(is_to_end=True))
        return state

    def fold(self) -> Folded:
        start, _, end = self.replica.bounds()
        batches, position = [], start
        while position < end:
            for at, size in batch.iterate(data := self.replica.read(position, 1 << 20)):
                batches.append(data[at : at + size])
                position = batch.next_offset(data, at)
        return folded(batches, end)

    def path(self, name: str = SNAPSHOT) -> Path:
        return self.partition.log.directory / name

    @property
    def kept(self) -> list[str]:
        """The snapshots that are there."""
        return [name for name in KINDS if self.disk.exists(self.path(name))]


def disk() -> StoppingFiles:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return StoppingFiles(loop.wall_ms)


async def story(seed: int) -> Counter[tuple[str, ...]]:
    """Lives that end in a crash; how many of them began with which snapshots."""
    rng, files, begun = Random(seed), disk(), Counter[tuple[str, ...]]()
    for epoch in range(LIVES):
        node = NodeLife(files, epoch)
        await node.start()
        state = node.state()
        assert content(state.fold) == node.fold(), f"life {epoch} of seed {seed}"
        begun[tuple(node.kept)] += 1
        files.arm(rng.randrange(10, 120))
        try:
            while True:
                await node.do_something(rng)
        except Died:
            files = cut(files, seed + epoch) if rng.random() < 0.7 else copied(files)
        files.arm(None)
        files._locked.clear()
    return begun


@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in range(0, 20, 10)], ids=str)
@in_simulated_time
async def test_snapshot_and_tail_are_the_fold_over_the_log_after_any_crash(seeds: range) -> None:
    begun = Counter[tuple[str, ...]]()
    for seed in seeds:
        begun += await story(seed)
    assert all(begun[names] for names in ((SNAPSHOT,), (INCREMENT,), KINDS)), begun


async def settled(node: NodeLife, rng: Random, kind: str = SNAPSHOT) -> None:
    """A node with a snapshot of all it has: a whole one, or an increment since the log start."""
    await node.start()
    for _ in range(30):
        node.write(rng)
    if kind == SNAPSHOT:
        await node.save_whole()
    else:
        await node.standbys.save()
    assert node.kept == [kind]


each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@in_simulated_time
async def test_a_load_reads_the_snapshot_and_only_the_tail_of_the_log(kind: str) -> None:
    node, rng = NodeLife(disk(), 0), Random(1)
    await settled(node, rng, kind)
    node.write(rng, 2)
    state = node.state()
    assert content(state.fold) == node.fold()
    assert state.fold.count == 2


@in_simulated_time
async def test_a_snapshot_is_written_when_a_segment_was_rolled_and_not_before() -> None:
    node, rng = NodeLife(disk(), 0), Random(1)
    await node.start()
    running = asyncio.create_task(node.standbys.run())
    node.write(rng)
    await asyncio.sleep(60)
    assert not node.kept
    while not node.replica.segment_base:
        node.write(rng)
    await asyncio.sleep(60)
    assert node.kept
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@each_kind
@in_simulated_time
async def test_a_flipped_bit_costs_the_snapshot_and_nothing_else(kind: str) -> None:
    node = NodeLife(disk(), 0)
    await settled(node, Random(1), kind)
    whole, expected = bytes(node.disk.read_whole(node.path(kind))), node.fold()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        node.disk.write_atomically(node.path(kind), bytes(data))
        assert content(node.state().fold) == expected, f"byte {place}"
        assert not node.kept


@each_kind
@in_simulated_time
async def test_a_snapshot_that_was_cut_short_is_not_used(kind: str) -> None:
    node = NodeLife(disk(), 0)
    await settled(node, Random(1), kind)
    del node.disk._files[node.path(kind)].data[-5:]
    assert content(node.state().fold) == node.fold()
    assert not node.kept


@each_kind
@in_simulated_time
async def test_a_snapshot_of_another_leaders_history_is_not_used(kind: str) -> None:
    """The log was cut and has grown past it again, and nobody here saw that."""
    node, rng = NodeLife(disk(), 0), Random(1)
    await settled(node, rng, kind)
    kept = bytes(node.disk.read_whole(node.path(kind)))
    own = node.partition.log
    own.truncate_to(30)
    node.partition.high_watermark = 30
    own.assign_epoch(7, 30)
    node.partition.leader_epoch = 7
    for _ in range(40):
        node.write(rng)
    node.disk.write_atomically(node.path(kind), kept)
    assert content(node.state().fold) == node.fold()
    assert not node.kept


@pytest.mark.parametrize("text", [format_offsets({(OFFSETS_TOPIC, 0): 91}), b"what is this"])
@each_kind
@in_simulated_time
async def test_a_snapshot_below_what_was_compacted_is_not_used(text: bytes, kind: str) -> None:
    """A tombstone above it may be gone, and its key would come back."""
    node, rng = NodeLife(disk(), 0), Random(1)
    await settled(node, rng, kind)
    node.write(rng)
    node.disk.write_atomically(HOME / CLEANED, text)
    assert content(node.state().fold) == node.fold()
    assert not node.kept


@each_kind
@in_simulated_time
async def test_a_snapshot_goes_when_the_log_starts_elsewhere(kind: str) -> None:
    node, rng = NodeLife(disk(), 0), Random(1)
    await settled(node, rng, kind)
    node.partition.log.advance_start(60)
    assert content(node.state().fold) == folded([], 0) or not node.kept
    assert not node.kept


@each_kind
@in_simulated_time
async def test_a_snapshot_of_a_deleted_log_goes_with_it(kind: str) -> None:
    node = NodeLife(disk(), 0)
    await settled(node, Random(1), kind)
    node.logs.delete(OFFSETS_TOPIC, 0)
    await node.standbys.save()
    assert not node.kept
    assert node.logs.directories[0].is_online
