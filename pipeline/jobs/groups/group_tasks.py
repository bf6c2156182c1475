"""Work on groups in parallel: each task opens its own sessions and takes hundreds at a time.

All rows of a group come to one task, in order, and are handed over together; groups are
independent of each other, but asked for many at once. Source: docs/spec/pipeline.md §4 (jobs 3 and
4: partitioned by group).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.bulk_group_admin import BulkGroupAdmin
from barnabas.client.errors import KafkaError
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.client.zookeeper.session_security import ZooKeeperSecurity
from barnabas.pipeline.source.address import ClusterAddress

Row = dict[str, Any]
Chunk = Mapping[str, list[Row]]
"""Groups, each with its rows."""
_GROUPS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 10_000
"""A chunk is closed when it has so many groups or rows: that bounds the memory of a task."""
_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClientConfig:
    """Whom the tasks ask; pickled to executors. ``zookeeper`` empty: no session is opened.

    ``client_id`` is what the cluster is told, and what its audit topic keeps.
    """

    address: ClusterAddress
    zookeeper: str = ""
    zookeeper_security: ZooKeeperSecurity = field(default_factory=ZooKeeperSecurity)
    client_id: str = "barnabas-spark"


@dataclass(frozen=True, slots=True)
class TaskClients:
    """What a task has open."""

    admin: Admin
    groups: BulkGroupAdmin
    zookeeper: ZooKeeper | None

    @property
    def ensemble(self) -> ZooKeeper:
        """The session with ZooKeeper, for work that asked for one."""
        assert self.zookeeper is not None, "opened with its address"
        return self.zookeeper


Work = Callable[[TaskClients, Chunk], Coroutine[Any, Any, list[Row]]]
"""What is done for some groups with their rows. KafkaError ends the job: catch what may be."""


def for_each_group(
    rows: DataFrame, client_config: TaskClientConfig, work: Work, schema: StructType, tasks: int
) -> DataFrame:
    """What ``work`` gives for every group of ``rows``, by ``tasks`` tasks."""
    arrow = to_arrow_schema(schema)
    spread = rows.repartition(tasks, "group").sortWithinPartitions(*_order(rows))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _worked(batches, client_config, work, arrow)

    return spread.mapInArrow(run, schema)


def _worked(
    batches: Iterator[pa.RecordBatch],
    client_config: TaskClientConfig,
    work: Work,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    chunks = _chunks(batches)
    first = next(chunks, None)
    if first is None:
        return
    with asyncio.Runner() as runner:
        clients = runner.run(_open(client_config))
        try:
            for chunk in chain([first], chunks):
                done = runner.run(work(clients, chunk))
                clients.groups.release(chunk)
                if done:
                    yield pa.RecordBatch.from_pylist(done, schema=schema)
        finally:
            runner.run(_close(clients))


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
    chunk: dict[str, list[Row]] = {}
    size = 0
    for group, rows in groupby(_rows(batches), key=lambda row: row["group"]):
        chunk[group] = list(rows)
        size += len(chunk[group])
        if len(chunk) >= _GROUPS_AT_ONCE or size >= _ROWS_AT_ONCE:
            yield chunk
            chunk, size = {}, 0
    if chunk:
        yield chunk


async def _open(client_config: TaskClientConfig) -> TaskClients:
    config = dataclasses.replace(
        client_config.address.config,
        client_id=client_config.client_id,
        api_timeout_ms=_TIMEOUT_MS,
    )
    zookeeper = None
    if client_config.zookeeper:
        zookeeper = await client_config.zookeeper_security.connect(client_config.zookeeper)
    admin = Admin.of(client_config.address.bootstrap, config)
    return TaskClients(admin, BulkGroupAdmin(admin), zookeeper)


async def _close(clients: TaskClients) -> None:
    await clients.admin.close()
    if clients.zookeeper is not None:
        await clients.zookeeper.close()


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _order(rows: DataFrame) -> Sequence[str]:
    return [name for name in ("group", "topic", "partition") if name in rows.columns]


def why(error: KafkaError) -> str:
    """An error for a cell of a table."""
    return f"{error.code.name}: {error}" if str(error) != error.code.name else error.code.name
