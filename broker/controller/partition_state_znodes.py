"""The state znodes of partitions: read, and written through the controller's fence.

Source: docs/spec/cluster.md §1.3, §2.2, §2.6 and §2.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from barnabas.client.zookeeper.interface import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    Op,
    Set,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.protocol.zookeeper import znodes

from .context import Leadership, Partition
from .controller_election import ControllerElection
from .leader_election import ElectionResult

log = logging.getLogger(__name__)

CHUNK: Final = 200
"""How many znodes one multi or one round of reads covers."""

Item = TypeVar("Item")


class WrittenState(NamedTuple):
    """The state of a partition that was written: what was chosen, over what."""

    partition: Partition
    choice: ElectionResult
    before: Leadership
    after: Leadership


class PartitionStateZnodes:
    """Reads and writes many state znodes at a time: a write is one multi where nothing conflicts.

    Every write raises the leader epoch; a leader's own change of its in-sync set never does, so
    that an unchanged epoch proves that only the leader wrote.
    """

    def __init__(self, zookeeper: ZooKeeper, election: ControllerElection) -> None:
        self._zookeeper = zookeeper
        self._election = election
        self._ignored: dict[Partition, int] = {}
        """Versions of the states that make no sense: nobody is elected until they are mended."""

    async def read(self, partitions: Iterable[Partition]) -> dict[Partition, Leadership]:
        """The states that exist and make sense. Raises ControllerMoved when a later one wrote."""
        found = {}
        for chunk in chunks(list(partitions)):
            for partition, state in zip(
                chunk, await asyncio.gather(*map(self._read, chunk)), strict=True
            ):
                if state is None:
                    continue
                if state.controller_epoch > self._election.epoch:
                    await self._election.fenced()  # raises ControllerMoved if it is
                    self._ignore(partition, state.zk_version, "its controller was never elected")
                    continue
                found[partition] = state
        return found

    async def create(
        self, choices: Mapping[Partition, ElectionResult], has_partitions: Mapping[str, bool]
    ) -> dict[Partition, Leadership]:
        """Create the states of new partitions; an existing one is read instead, not replaced.

        ``has_partitions`` says of each topic whether its ``partitions`` znode exists already.
        """
        created: dict[Partition, Leadership] = {}
        parents = {topic for topic, has_one in has_partitions.items() if not has_one}
        for chunk in chunks(list(choices)):
            missing = sorted({topic for topic, _index in chunk} & parents)
            operations: list[Op] = [Create(znodes.partitions_path(topic)) for topic in missing]
            parents -= {topic for topic, _index in chunk}
            for partition in chunk:
                operations += self._creation(partition, choices[partition])
            try:
                await self._election.fenced(*operations)
                for partition in chunk:
                    created[partition] = self._leadership(choices[partition], 0, None)
            except (NodeExists, NoNode):
                created |= await self._create_one_by_one(chunk, choices)
        return created

    async def change(
        self,
        partitions: Iterable[Partition],
        known: dict[Partition, Leadership],
        choose: Callable[[Partition, Leadership], ElectionResult | None],
    ) -> AsyncIterator[WrittenState]:
        """Write what ``choose`` says of each state; None leaves it as it is.

        ``known`` are the states as last read or written, and are brought up to date. It chooses
        from them first: a write compares versions, so none is made over a state that changed since.
        Only where one did, where none is known, or where nothing was chosen, is the state read, as
        often as it changes. Reading all of them took as long as writing them, with nobody to lead.
        """
        remaining, is_read = list(partitions), False
        states = {partition: known[partition] for partition in remaining if partition in known}
        while remaining:
            wanted = {}
            for partition, state in states.items():
                if (choice := choose(partition, state)) is not None:
                    wanted[partition] = (choice, state)
            written, conflicts = await self._write(wanted, is_each_tried=is_read)
            known.update(written)
            for partition, after in written.items():
                yield WrittenState(partition, *wanted[partition], after)
            remaining = (
                conflicts if is_read else [each for each in remaining if each not in written]
            )
            states, is_read = await self.read(remaining), True
            known.update(states)

    async def _write(
        self,
        wanted: Mapping[Partition, tuple[ElectionResult, Leadership]],
        *,
        is_each_tried: bool,
    ) -> tuple[dict[Partition, Leadership], list[Partition]]:
        """Write what was chosen; also returns what changed meanwhile, or was written with it."""
        written: dict[Partition, Leadership] = {}
        conflicts: list[Partition] = []
        for chunk in chunks(list(wanted)):
            try:
                written |= await self._set(chunk, wanted)
            except (BadVersion, NoNode):
                if not is_each_tried:
                    conflicts += chunk
                    continue
                for partition in chunk:
                    try:
                        written |= await self._set([partition], wanted)
                    except (BadVersion, NoNode):
                        conflicts.append(partition)
        return written, conflicts

    async def _set(
        self,
        partitions: Sequence[Partition],
        wanted: Mapping[Partition, tuple[ElectionResult, Leadership]],
    ) -> dict[Partition, Leadership]:
        operations = []
        for partition in partitions:
            choice, before = wanted[partition]
            data = self._data(choice, before.leader_epoch + 1)
            operations.append(Set(znodes.partition_state_path(*partition), data, before.zk_version))
        stats: list[Stat] = await self._election.fenced(*operations)
        return {
            partition: self._leadership(
                wanted[partition][0], wanted[partition][1].leader_epoch + 1, stat
            )
            for partition, stat in zip(partitions, stats, strict=True)
        }

    async def _create_one_by_one(
        self, partitions: Sequence[Partition], choices: Mapping[Partition, ElectionResult]
    ) -> dict[Partition, Leadership]:
        """After a controller that died half way: some of the znodes are there already."""
        created = {}
        for partition in partitions:
            operations: list[Op] = [Create(znodes.partitions_path(partition[0]))]
            operations += self._creation(partition, choices[partition])
            for operation in operations:
                try:
                    await self._election.fenced(operation)
                except NodeExists:
                    continue
            states = await self.read([partition])
            if not states and partition not in self._ignored:
                raise ZooKeeperError(f"{partition} has no state although it was created")
            created.update(states)
        return created

    def _ignore(self, partition: Partition, version: int, problem: object) -> None:
        """Say it once of each version."""
        if self._ignored.get(partition) != version:
            log.error(
                "ignored a state that makes no sense partition=%s-%d: %s", *partition, problem
            )
        self._ignored[partition] = version

    def _creation(self, partition: Partition, choice: ElectionResult) -> list[Op]:
        return [
            Create(znodes.partition_path(*partition)),
            Create(znodes.partition_state_path(*partition), self._data(choice, 0)),
        ]

    async def _read(self, partition: Partition) -> Leadership | None:
        try:
            data, stat = await self._zookeeper.get(znodes.partition_state_path(*partition))
        except NoNode:
            return None
        try:
            state = znodes.PartitionState.from_json(data)
        except ValueError as error:
            self._ignore(partition, stat.version, error)
            return None
        return Leadership(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=state.controller_epoch,
            zk_version=stat.version,
            mzxid=stat.mzxid,
        )

    def _data(self, choice: ElectionResult, leader_epoch: int) -> bytes:
        return znodes.PartitionState(
            leader=choice.leader,
            leader_epoch=leader_epoch,
            controller_epoch=self._election.epoch,
            isr=choice.isr,
        ).to_json()

    def _leadership(
        self, choice: ElectionResult, leader_epoch: int, stat: Stat | None
    ) -> Leadership:
        return Leadership(
            leader=choice.leader,
            leader_epoch=leader_epoch,
            isr=choice.isr,
            controller_epoch=self._election.epoch,
            zk_version=0 if stat is None else stat.version,
            mzxid=0 if stat is None else stat.mzxid,
        )


def chunks(items: Sequence[Item], size: int = CHUNK) -> Iterator[Sequence[Item]]:
    """The items in runs of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
