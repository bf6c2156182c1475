"""The offsets that classic consumers keep in ZooKeeper, as a frame: ``/consumers/*/offsets``.

Groups are divided among as many tasks as there may be sessions; each reads with many requests
under way at once. Source: docs/spec/pipeline.md §1.4 and §4 (job 3); docs/spec/coordinator.md §6.1.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.client.admin.offset_migration import number_in
from barnabas.client.zookeeper.interface import NoNode, ZooKeeper, read_if_any
from barnabas.client.zookeeper.session_security import ZooKeeperSecurity
from barnabas.protocol.zookeeper import znodes

from .address import read_zookeeper_security
from .errors import BadOption
from .layout import Layout
from .rows import ROWS_PER_BATCH, times
from .spark_options import SparkOptions

log = logging.getLogger(__name__)

_UNDER_WAY: Final = 64
_GROUPS_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperOptions:
    """Which groups of which ensemble to read."""

    hosts: str
    security: ZooKeeperSecurity
    groups: str
    """A pattern that is found in the names of groups wanted."""
    connections: int
    timeout_ms: int


def zookeeper_options(options: Mapping[str, str]) -> ZooKeeperOptions:
    """Read the options of a frame of znodes; raises BadOption."""
    spark_options = SparkOptions(options)
    groups = spark_options.text("groups") or ""
    try:
        re.compile(groups)
    except re.error as error:
        raise BadOption("groups", f"{groups}: {error}") from error
    found = ZooKeeperOptions(
        hosts=spark_options.needed("zookeeper.connect", "127.0.0.1:2181/chroot"),
        security=read_zookeeper_security(spark_options),
        groups=groups,
        connections=spark_options.count("zookeeperConnections", 4),
        timeout_ms=spark_options.count("zookeeper.connection.timeout.ms", 18_000),
    )
    spark_options.text("columns")
    spark_options.refuse_unknown()
    return found


class GroupsTask(InputPartition):
    """The groups that one task reads."""

    def __init__(self, value: Sequence[str]) -> None:
        super().__init__(list(value))


class ZooKeeperReader(DataSourceReader):
    """Reads what is there; a znode that vanishes meanwhile is not an error."""

    def __init__(self, options: ZooKeeperOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def partitions(self) -> Sequence[InputPartition]:
        """The groups by the hash of their names, so that a second run divides them alike."""
        wanted = re.compile(self._options.groups)
        groups = asyncio.run(self._groups())
        packs: dict[int, list[str]] = {}
        for group in sorted(groups):
            if wanted.search(group):
                packs.setdefault(crc32(group.encode()) % self._options.connections, []).append(
                    group
                )
        return [GroupsTask(packs[number]) for number in sorted(packs)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of one task, on an executor."""
        groups: Sequence[str] = partition.value or ()
        if not groups:
            return
        with asyncio.Runner() as runner:
            session = runner.run(self._connected())
            needs_owners = "owner" in self._layout.names
            try:
                rows: list[dict[str, Any]] = []
                for at in range(0, len(groups), _GROUPS_AT_ONCE):
                    rows += runner.run(
                        _Walk(session, needs_owners=needs_owners).rows(
                            groups[at : at + _GROUPS_AT_ONCE]
                        )
                    )
                    if len(rows) >= ROWS_PER_BATCH:
                        yield self._batch(rows)
                        rows = []
                if rows:
                    yield self._batch(rows)
            finally:
                runner.run(session.close())

    async def _groups(self) -> list[str]:
        session = await self._connected()
        try:
            return await session.children(znodes.CONSUMERS)
        except NoNode:
            return []
        finally:
            await session.close()

    async def _connected(self) -> ZooKeeper:
        options = self._options
        return await options.security.connect(
            options.hosts, connection_timeout_ms=options.timeout_ms
        )

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        schema = self._layout.arrow
        columns = [
            times([row[field.name] for row in rows])
            if field.name == "modified"
            else pa.array([row[field.name] for row in rows], field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Walk:
    """Goes down from groups to offsets, a bounded number of requests at a time."""

    def __init__(self, session: ZooKeeper, *, needs_owners: bool) -> None:
        self._session = session
        self._needs_owners = needs_owners
        self._slots = asyncio.Semaphore(_UNDER_WAY)
        self._owned: set[tuple[str, str]] = set()
        """Groups and topics that have owners at all: most groups have none when they move."""

    async def rows(self, groups: Sequence[str]) -> list[dict[str, Any]]:
        """A row for each offset of these groups, in the order of names and numbers."""
        topics = await asyncio.gather(
            *(self._children(f"{znodes.CONSUMERS}/{group}/offsets") for group in groups)
        )
        if self._needs_owners:
            self._owned = await self._with_owners(groups)
        pairs = [
            (group, topic)
            for group, found in zip(groups, topics, strict=True)
            for topic in sorted(found)
        ]
        partitions = await asyncio.gather(
            *(self._children(f"{znodes.CONSUMERS}/{g}/offsets/{topic}") for g, topic in pairs)
        )
        wanted = [
            (group, topic, int(partition))
            for (group, topic), found in zip(pairs, partitions, strict=True)
            for partition in sorted(filter(str.isdigit, found), key=int)
        ]
        rows = await asyncio.gather(*(self._row(*key) for key in wanted))
        return [row for row in rows if row is not None]

    async def _with_owners(self, groups: Sequence[str]) -> set[tuple[str, str]]:
        owned = await asyncio.gather(
            *(self._children(f"{znodes.CONSUMERS}/{group}/owners") for group in groups)
        )
        return {
            (group, topic) for group, found in zip(groups, owned, strict=True) for topic in found
        }

    async def _children(self, path: str) -> list[str]:
        async with self._slots:
            try:
                return await self._session.children(path)
            except NoNode:
                return []

    async def _row(self, group: str, topic: str, partition: int) -> dict[str, Any] | None:
        path = znodes.consumer_offset_path(group, topic, partition)
        async with self._slots:
            found = await read_if_any(self._session, path)
        if found is None:
            return None
        data, stat = found
        offset = number_in(data)
        if offset is None:
            log.warning("no offset path=%s data=%r", path, data[:40])
        return {
            "group": group,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "modified": stat.mtime_ms,
            "version": stat.version,
            "owner": await self._owner(group, topic, partition),
        }

    async def _owner(self, group: str, topic: str, partition: int) -> str | None:
        if (group, topic) not in self._owned:
            return None
        async with self._slots:
            path = znodes.consumer_owner_path(group, topic, partition)
            found = await read_if_any(self._session, path)
        return found[0].decode(errors="replace") if found else None
