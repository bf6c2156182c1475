"""The sweep over all groups: late rather than heavy.

One offsets partition after the other is read (its latest records, for the verdicts), then its
groups are asked, a hundred with the same few questions. After each step the sweep rests for as long
as its share of the processor asks, and it rests altogether while nobody looks.
Source: docs/spec/console.md §2.1 and §5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.commit_history import OFFSETS_TOPIC, History, read_histories
from barnabas.client.errors import KafkaError
from barnabas.console.groups.unread_times import UnreadTimes
from barnabas.coordinator.group_health import BURROW
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition

from .catalogue import Catalogue
from .reading import FAILURES, Problem, problem_of
from .standings import GroupRow, rows_of_groups

log = logging.getLogger(__name__)

SHARE: Final = 0.05
"""Of one processor, from the second round on."""
FIRST_SHARE: Final = 0.5
"""In the first round somebody waits for it."""
PAUSE_S: Final = 2.0
"""Between two rounds."""
LOOKED_AT_S: Final = 60.0
"""A sweep rests when for so long nobody has looked at a page."""
RECORDS_MAX: Final = 20_000
"""So much of an offsets partition is read for its verdicts."""
_AT_ONCE: Final = 100
"""So many groups are asked together."""


class Survey:
    """The last known standing of every group, kept up to date while somebody looks."""

    def __init__(self, admin: Admin, catalogue: Catalogue) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self.rows: dict[str, GroupRow] = {}
        self.readers: dict[str, set[str]] = {}
        """Which groups read each topic: never a question for each topic."""
        self.unread = UnreadTimes()
        self.version = 0
        """Another one whenever rows were changed."""
        self.problem: Problem | None = None
        """Why the last round did not get through."""
        self.rounds = 0
        """How many went over all groups."""
        self._share = FIRST_SHARE
        self._looked_at = 0.0
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Somebody is looking: go on, or begin."""
        self._looked_at = time.monotonic()
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="console sweep")

    async def close(self) -> None:
        """End the sweep."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await self._watched()
            try:
                await self._round()
                self.problem = None
            except FAILURES as error:
                self.problem = problem_of(error, self.problem.since_ms if self.problem else None)
            except Exception as error:
                log.exception("a round of the sweep failed")
                self.problem = problem_of(error, self.problem.since_ms if self.problem else None)
            await asyncio.sleep(PAUSE_S)

    async def _round(self) -> None:
        reading = await self._catalogue.groups.read()
        if reading.value is None or reading.problem is not None:
            self.problem = reading.problem
            return
        names = reading.value.names
        for pack in await self._packs(names):
            began = time.thread_time()
            histories = await readable_histories(self._admin, pack, RECORDS_MAX)
            await self._rest(began)
            for start in range(0, len(pack), _AT_ONCE):
                began = time.thread_time()
                await self._survey_groups(pack[start : start + _AT_ONCE], histories)
                await self._rest(began)
        for gone in self.rows.keys() - set(names):
            self._keep(gone, None)
        self.rounds += 1
        self._share = SHARE

    async def _packs(self, names: Sequence[str]) -> list[list[str]]:
        """The groups of one offsets partition after the other, each of which is read once.

        Partitions of few groups are read together: a pack is as many as are asked together.
        """
        if not names:
            return []
        (topic,) = await self._admin.describe_topics([OFFSETS_TOPIC])
        by_partition: dict[int, list[str]] = defaultdict(list)
        for name in names:
            by_partition[group_partition(name, len(topic.partitions))].append(name)
        packs: list[list[str]] = [[]]
        for groups in by_partition.values():
            if len(packs[-1]) >= _AT_ONCE:
                packs.append([])
            packs[-1] += groups
        return packs

    async def _survey_groups(self, names: Sequence[str], histories: dict[str, History]) -> None:
        for name, found in (
            await rows_of_groups(self._admin, names, histories, self.unread)
        ).items():
            if isinstance(found, KafkaError):
                log.debug("a group was left out of the sweep: %s", found)
            else:
                self._keep(name, found)

    def _keep(self, name: str, row: GroupRow | None) -> None:
        """A group stands so now; None for one that is gone."""
        before = self.rows.get(name)
        after = () if row is None else row.topics
        for topic in () if before is None else before.topics:
            if topic not in after:
                self.readers[topic].discard(name)
                if not self.readers[topic]:
                    del self.readers[topic]
        for topic in after:
            self.readers.setdefault(topic, set()).add(name)
        if row is None:
            self.rows.pop(name, None)
        else:
            self.rows[name] = row
        self.version += 1

    async def _rest(self, began: float) -> None:
        """After a step that began at this thread time; longer while nobody looks."""
        await asyncio.sleep((time.thread_time() - began) * (1 / self._share - 1))
        await self._watched()

    async def _watched(self) -> None:
        if time.monotonic() - self._looked_at > LOOKED_AT_S:
            self._wanted.clear()
        await self._wanted.wait()


async def readable_histories(
    admin: Admin, names: Sequence[str], records_max: int
) -> dict[str, History]:
    """What groups committed lately; nothing for who may not read the offsets topic."""
    try:
        return await read_histories(admin, names, commits=BURROW.commits, records_max=records_max)
    except KafkaError as error:
        if error.code not in (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ):  # fmt: skip
            raise
        return {}
