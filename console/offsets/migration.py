"""The four commands of a migration at rest: plan, apply, verify and roll back.

Source: docs/spec/coordinator.md §6.8.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.client.admin.offset_migration import OTHER, MigrationPlan, StoredOffsets, moved
from barnabas.client.admin.offset_migration_stores import BothStores
from barnabas.client.errors import KafkaError
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.console.command_line.failure import Failure

from .migration_files import MigrationJournal, read_plan, write_plan

_GROUPS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """What became of one group: ``done``, ``before`` (done earlier), ``refused`` or ``failed``."""

    group: str
    state: str
    written: int = 0
    why: str | None = None

    @property
    def is_good(self) -> bool:
        """The group is where it should be."""
        return self.state in ("done", "before")


async def make_plan(
    stores: BothStores, path: Path, groups: Sequence[str], to: str, *, source_wins: bool
) -> MigrationPlan:
    """Read both stores and write down what would be done; no groups means all classic ones."""
    known = await stores.known_partitions()
    names = groups or await stores.classic_groups()
    held = await _held(stores, names, known)
    missing = [group for group in groups if not held[group]]
    if missing:
        raise Failure(f"no offset in either store: {', '.join(missing)}")
    plan = MigrationPlan(
        to=to,
        time_ms=_now_ms(),
        source_wins=source_wins,
        held={group: offsets for group, offsets in held.items() if offsets},
    )
    write_plan(path, plan)
    return plan


async def apply_plan(
    stores: BothStores, path: Path, *, even_if_live: bool
) -> list[MigrationResult]:
    """Write what the plan says, group by group; those that were done before are passed over."""
    plan, journal = read_plan(path), MigrationJournal(path)
    known = await stores.known_partitions()
    mover = _Mover(stores, journal, known, even_if_live=even_if_live)
    outcomes = []
    for group, planned in plan.held.items():
        if journal.is_done(group, plan.to):
            outcomes.append(MigrationResult(group=group, state="before"))
        else:
            outcomes.append(
                await mover.move(group, plan.to, source_wins=plan.source_wins, planned=planned)
            )
    return outcomes


async def roll_back(stores: BothStores, path: Path, *, even_if_live: bool) -> list[MigrationResult]:
    """Take every group that was touched back to the store it came from.

    That store gets what the group has committed since, where it is more; nothing is rewound, and
    what the other store holds stays there.
    """
    plan, journal = read_plan(path), MigrationJournal(path)
    back = OTHER[plan.to]
    known = await stores.known_partitions()
    mover = _Mover(stores, journal, known, even_if_live=even_if_live)
    outcomes = []
    for group in journal.touched():
        if journal.is_done(group, back):
            outcomes.append(MigrationResult(group=group, state="before"))
        else:
            outcomes.append(await mover.move(group, back, source_wins=False, planned=None))
    return outcomes


async def verify(stores: BothStores, path: Path) -> tuple[MigrationPlan, list[StoredOffsets]]:
    """The plan, and what both stores hold now of its groups."""
    plan = read_plan(path)
    known = await stores.known_partitions()
    held = await _held(stores, list(plan.held), known)
    return plan, [offset for group in plan.held for offset in held[group]]


async def _held(
    stores: BothStores, groups: Sequence[str], known: set[TopicPartition]
) -> dict[str, list[StoredOffsets]]:
    """What both stores hold, read of hundreds of groups at a time."""
    found: dict[str, list[StoredOffsets]] = {}
    for start in range(0, len(groups), _GROUPS_AT_ONCE):
        some = groups[start : start + _GROUPS_AT_ONCE]
        found |= await stores.held(some, known)
        stores.release(some)
    return found


class _Mover:
    """Moves one group after the other; what fails for one stops no other."""

    def __init__(
        self,
        stores: BothStores,
        journal: MigrationJournal,
        known: set[TopicPartition],
        *,
        even_if_live: bool,
    ) -> None:
        self._stores = stores
        self._journal = journal
        self._known = known
        self._even_if_live = even_if_live

    async def move(
        self, group: str, to: str, *, source_wins: bool, planned: Sequence[StoredOffsets] | None
    ) -> MigrationResult:
        try:
            return await self._move(group, to, source_wins, planned)
        except (KafkaError, ZooKeeperError) as error:
            return MigrationResult(group=group, state="failed", why=str(error))

    async def _move(
        self, group: str, to: str, source_wins: bool, planned: Sequence[StoredOffsets] | None
    ) -> MigrationResult:
        held = await self._held_of(group)
        refusal = None if self._even_if_live else await self._refusal(group, to, planned, held)
        if refusal is not None:
            return MigrationResult(group=group, state="refused", why=refusal)
        steps = {
            stored.topic_partition: stored.step(to, source_wins=source_wins)[1] for stored in held
        }
        offsets = {
            topic_partition: offset
            for topic_partition, offset in steps.items()
            if offset is not None
        }
        self._journal.begin(group, to, held, _now_ms())
        await self._stores.write(group, to, offsets)
        after = {stored.topic_partition: stored.at(to) for stored in await self._held_of(group)}
        wrong = [
            topic_partition
            for topic_partition, offset in offsets.items()
            if after.get(topic_partition) != offset
        ]
        if wrong:
            named = ", ".join(f"{topic}-{partition}" for topic, partition in wrong[:3])
            why = f"somebody else commits too: {named} hold other offsets than were written"
            return MigrationResult(group=group, state="failed", why=why, written=len(offsets))
        self._journal.done(group, to, len(offsets), _now_ms())
        return MigrationResult(group=group, state="done", written=len(offsets))

    async def _held_of(self, group: str) -> list[StoredOffsets]:
        return (await self._stores.held([group], self._known))[group]

    async def _refusal(
        self,
        group: str,
        to: str,
        planned: Sequence[StoredOffsets] | None,
        held: Sequence[StoredOffsets],
    ) -> str | None:
        life = (await self._stores.classic_activity_of([group]))[group]
        if isinstance(life, KafkaError):
            raise life
        if life is not None:
            return f"{life}: stop them first"
        changed = [] if planned is None else moved(planned, held, OTHER[to])
        if changed:
            return f"{len(changed)} offsets changed since the plan was made: make another"
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
