"""Work on groups in parallel: each task opens its own sessions and takes a few groups at a time.

All rows of a group come to one task, in order, and are handed over together; groups are
independent of each other. Source: pipeline.md section 12 (jobs 3 and 4: partitioned by group).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.client.admin import Admin
from barnabas.client.config import ClientConfig
from barnabas.client.ensemble import ZooKeeper
from barnabas.client.errors import KafkaError
from barnabas.client.zookeeper import connect
from barnabas.pipeline.source.address import Address

Row = dict[str, Any]
AT_ONCE: Final = 64
"""So many groups of a task are under way together."""
_CHUNK: Final = 1_024
_TIMEOUT_MS: Final = 60_000
_ZOOKEEPER_TIMEOUT_MS: Final = 18_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Whom the tasks ask; pickled to executors. ``zookeeper`` empty: no session is opened.

    ``client_id`` is what the cluster is told, and what its audit topic keeps.
    """

    address: Address
    zookeeper: str = ""
    client_id: str = "barnabas-spark"


@dataclass(frozen=True, slots=True)
class Doors:
    """What a task has open."""

    admin: Admin
    zookeeper: ZooKeeper | None

    @property
    def ensemble(self) -> ZooKeeper:
        """The session with ZooKeeper, for work that asked for one."""
        assert self.zookeeper is not None, "opened with its address"
        return self.zookeeper


Work = Callable[[Doors, str, list[Row]], Coroutine[Any, Any, list[Row]]]
"""What is done for one group with its rows. KafkaError ends the job: catch what may be."""


def for_each_group(
    rows: DataFrame, sessions: Sessions, work: Work, schema: StructType, tasks: int
) -> DataFrame:
    """What ``work`` gives for every group of ``rows``, by ``tasks`` tasks."""
    arrow = to_arrow_schema(schema)
    spread = rows.repartition(tasks, "group").sortWithinPartitions(*_order(rows))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _worked(batches, sessions, work, arrow)

    return spread.mapInArrow(run, schema)


def _worked(
    batches: Iterator[pa.RecordBatch], sessions: Sessions, work: Work, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    groups = groupby(_rows(batches), key=lambda row: row["group"])
    pairs = ((group, list(rows)) for group, rows in groups)
    first = list(islice(pairs, _CHUNK))
    if not first:
        return
    with asyncio.Runner() as runner:
        doors = runner.run(_open(sessions))
        try:
            while first:
                done = runner.run(_all(doors, first, work))
                if done:
                    yield pa.RecordBatch.from_pylist(done, schema=schema)
                first = list(islice(pairs, _CHUNK))
        finally:
            runner.run(_close(doors))


async def _all(doors: Doors, groups: Iterable[tuple[str, list[Row]]], work: Work) -> list[Row]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(group: str, rows: list[Row]) -> list[Row]:
        async with slots:
            return await work(doors, group, rows)

    done = await asyncio.gather(*(one(*each) for each in groups))
    return [row for rows in done for row in rows]


async def _open(sessions: Sessions) -> Doors:
    config = ClientConfig(
        client_id=sessions.client_id,
        sasl_username=sessions.address.username,
        sasl_password=sessions.address.password,
        api_timeout_ms=_TIMEOUT_MS,
    )
    zookeeper = None
    if sessions.zookeeper:
        zookeeper = await connect(sessions.zookeeper, connection_timeout_ms=_ZOOKEEPER_TIMEOUT_MS)
    return Doors(Admin.of(sessions.address.bootstrap, config), zookeeper)


async def _close(doors: Doors) -> None:
    await doors.admin.close()
    if doors.zookeeper is not None:
        await doors.zookeeper.close()


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _order(rows: DataFrame) -> Sequence[str]:
    return [name for name in ("group", "topic", "partition") if name in rows.columns]


def why(error: KafkaError) -> str:
    """An error for a cell of a table."""
    return f"{error.code.name}: {error}" if str(error) != error.code.name else error.code.name


def members_of(state: str, members: int) -> str | None:
    """Why the offsets of a group in ``state`` may not be touched; None when they may."""
    if state in ("Empty", "Dead"):
        return None
    return f"active: {state} with {members} {'member' if members == 1 else 'members'}"


def by_place(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Rows of one group by topic and partition."""
    return {(row["topic"], row["partition"]): row for row in rows}
