"""Steps of zk-migrate for some groups: rows in, both stores read or written, rows out.

What is to be done about two offsets, and who counts as active, stands in
client/admin/offset_migration.py; what is written here was read a moment before and is still as
planned.
Source: docs/spec/coordinator.md §6.7 and §6.8; docs/spec/pipeline.md §4, job 3.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from barnabas.client.admin.bulk_group_admin import Codes
from barnabas.client.admin.descriptions import Committed
from barnabas.client.admin.offset_migration import (
    KAFKA,
    OTHER,
    ZOOKEEPER,
    StoredOffsetKey,
    StoredOffsets,
)
from barnabas.client.admin.offset_migration_stores import BothStores, Znode
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.zookeeper.interface import BadVersion, NodeExists, NoNode, ZooKeeperError
from barnabas.protocol.errors import ErrorCode

from .group_tasks import Chunk, Row, TaskClients, why

SCHEMA: Final = (
    StructType()
    .add("group", StringType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("zk_offset", LongType())
    .add("kafka_offset", LongType())
    .add("target", LongType())
    .add("state", StringType())
    .add("action", StringType())
    .add("error", StringType())
)
"""The offsets as they were when it was planned; ``target`` is what both stores are to hold.

``action``: none, to-kafka, to-zookeeper or skip. ``state``: planned, equal, migrated, verified,
differs, rolled-back, moved, active, gone (the partition no longer exists) or failed.
"""
NONE, SKIP = "none", "skip"
_ACTIONS: Final = {KAFKA: "to-kafka", ZOOKEEPER: "to-zookeeper"}
_STORES: Final = {action: store for store, action in _ACTIONS.items()}
_COLUMNS: Final = {KAFKA: "kafka_offset", ZOOKEEPER: "zk_offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """A row for every offset that either store has; the rows given are ZooKeeper's."""

    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many there are, by topic."""
    topics: str = ""
    """A pattern found in the names of topics wanted."""
    allows_active: bool = False

    async def __call__(self, clients: TaskClients, chunk: Chunk) -> list[Row]:
        """The plan of these groups."""
        stores = BothStores(clients.ensemble, clients.admin)
        try:
            committed = await stores.committed(chunk)
            active = {} if self.allows_active else await stores.classic_activity_of(chunk)
        except ZooKeeperError as failure:
            return [_failed(row, repr(failure)) for rows in chunk.values() for row in rows]
        planned: list[Row] = []
        for group, rows in chunk.items():
            offsets, sign = committed[group], active.get(group)
            problem = next(
                (answer for answer in (offsets, sign) if isinstance(answer, KafkaError)), None
            )
            if problem is not None:
                planned += [_failed(row, why(problem)) for row in rows]
                continue
            assert not isinstance(offsets, KafkaError), "checked above"
            its = [self._row(held) for held in self._held(group, rows, offsets)]
            if sign is not None:
                its = [row | {"state": "active", "action": SKIP, "error": str(sign)} for row in its]
            planned += its
        return planned

    def _held(
        self, group: str, rows: Sequence[Row], committed: Mapping[TopicPartition, Committed]
    ) -> Iterable[StoredOffsets]:
        in_zookeeper = {_topic_partition(row): row["offset"] for row in rows}
        wanted = re.compile(self.topics)
        in_kafka = {
            topic_partition: commit.offset
            for topic_partition, commit in committed.items()
            if wanted.search(topic_partition.topic)
        }
        for topic_partition in sorted(in_zookeeper.keys() | in_kafka.keys()):
            yield StoredOffsets(
                group=group,
                topic_partition=topic_partition,
                zookeeper=in_zookeeper.get(topic_partition),
                kafka=in_kafka.get(topic_partition),
            )

    def _row(self, held: StoredOffsets) -> Row:
        row = {
            **dict.fromkeys(SCHEMA.names),
            "group": held.group,
            "topic": held.topic_partition.topic,
            "partition": held.topic_partition.partition,
            "zk_offset": held.zookeeper,
            "kafka_offset": held.kafka,
        }
        if held.topic_partition.partition >= self.partitions.get(held.topic_partition.topic, 0):
            return row | {"state": "gone", "action": SKIP, "error": "there is no such partition"}
        store, target = held.leveled()
        if target is None:
            return row | {"state": "failed", "action": SKIP, "error": "the znode holds no offset"}
        if store is None:
            return row | {"target": target, "state": "equal", "action": NONE}
        return row | {"target": target, "state": "planned", "action": _ACTIONS[store]}


async def verify(clients: TaskClients, chunk: Chunk) -> list[Row]:
    """Read both again; ``zk_offset`` and ``kafka_offset`` are what they hold now."""
    looked = [row for rows in chunk.values() for row in rows if row["state"] != "gone"]
    try:
        now = await _Now.of(BothStores(clients.ensemble, clients.admin), looked)
    except ZooKeeperError as failure:
        _set_state(looked, "failed", repr(failure))
        return [row for rows in chunk.values() for row in rows]
    for row in looked:
        held = now.held(row)
        if isinstance(held, KafkaError):
            _set_state([row], "failed", why(held))
            continue
        row["zk_offset"], row["kafka_offset"] = held.zookeeper, held.kafka
        _set_state([row], "verified" if held.zookeeper == held.kafka else "differs", None)
    return [row for rows in chunk.values() for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Bring both stores to the target, or back to what they held before.

    Only where they hold what was planned with, or when it goes back the target. A group with
    members is refused by its coordinator even if ``allows_active``.
    """

    is_back: bool = False
    allows_active: bool = False

    async def __call__(self, clients: TaskClients, chunk: Chunk) -> list[Row]:
        """The rows of these groups, with what came of them."""
        stores = BothStores(clients.ensemble, clients.admin)
        rows = [row for its in chunk.values() for row in its]
        chosen = [row for row in rows if row["action"] in _STORES]
        try:
            chosen = await self._at_rest(stores, chosen)
            now = await _Now.of(stores, chosen)
        except ZooKeeperError as failure:
            _set_state(chosen, "failed", repr(failure))
            return rows
        due = [row for row in chosen if self._is_due(row, now)]
        await asyncio.gather(
            self._write_kafka(stores, [row for row in due if _store(row) == KAFKA]),
            *(self._write_znode(stores, row, now) for row in due if _store(row) == ZOOKEEPER),
        )
        return rows

    async def _at_rest(self, stores: BothStores, rows: list[Row]) -> list[Row]:
        """The rows of groups that nobody consumes in; the others are told why not."""
        if self.allows_active:
            return rows
        signs = await stores.classic_activity_of({row["group"]: None for row in rows})
        for row in rows:
            sign = signs[row["group"]]
            if isinstance(sign, KafkaError):
                _set_state([row], "failed", why(sign))
            elif sign is not None:
                _set_state([row], "active", sign)
        return [row for row in rows if signs[row["group"]] is None]

    def _is_due(self, row: Row, now: _Now) -> bool:
        """Whether the row is still to be written; it is told what else it is."""
        held = now.held(row)
        if isinstance(held, KafkaError):
            _set_state([row], "failed", why(held))
            return False
        store = _store(row)
        if held.at(store) == self._wanted(row):
            _set_state([row], self._done_state, None)
            return False
        expected = {store: row["target"]} if self.is_back else {
            name: row[_COLUMNS[name]] for name in (store, OTHER[store])
        }  # fmt: skip
        for name, offset in expected.items():
            if held.at(name) != offset:
                _set_state([row], "moved", f"{name} is at {held.at(name)}, not {offset}")
                return False
        return True

    async def _write_kafka(self, stores: BothStores, rows: Sequence[Row]) -> None:
        """Commit, or forget, many offsets of many groups."""
        commits: dict[str, dict[TopicPartition, Committed]] = defaultdict(dict)
        removals: dict[str, list[TopicPartition]] = defaultdict(list)
        for row in rows:
            offset = self._wanted(row)
            if offset is None:
                removals[row["group"]].append(_topic_partition(row))
            else:
                commits[row["group"]][_topic_partition(row)] = Committed(offset=offset)
        committed, removed = await stores.commit(commits), await stores.forget(removals)
        for row in rows:
            answers = removed if self._wanted(row) is None else committed
            problem = _problem(answers[row["group"]], _topic_partition(row))
            _set_state([row], self._done_state if problem is None else "failed", problem)

    async def _write_znode(self, stores: BothStores, row: Row, now: _Now) -> None:
        try:
            await stores.write_znode(
                _offset_key(row), self._wanted(row), now.znodes.get(_offset_key(row))
            )
        except (BadVersion, NodeExists, NoNode):
            _set_state([row], "moved", "somebody wrote the znode meanwhile")
        except ZooKeeperError as failure:
            _set_state([row], "failed", repr(failure))
        else:
            _set_state([row], self._done_state, None)

    def _wanted(self, row: Row) -> int | None:
        offset: int | None = row[_COLUMNS[_store(row)]] if self.is_back else row["target"]
        return offset

    @property
    def _done_state(self) -> str:
        return "rolled-back" if self.is_back else "migrated"


@dataclass(frozen=True, slots=True)
class _Now:
    """What both stores hold of the offsets of some rows."""

    znodes: Mapping[StoredOffsetKey, Znode]
    committed: Mapping[str, Mapping[TopicPartition, Committed] | KafkaError]

    @classmethod
    async def of(cls, stores: BothStores, rows: Sequence[Row]) -> _Now:
        groups = {row["group"]: None for row in rows}
        znodes, committed = await asyncio.gather(
            stores.znodes(map(_offset_key, rows)), stores.committed(groups)
        )
        return cls(znodes, committed)

    def held(self, row: Row) -> StoredOffsets | KafkaError:
        """Of one row; or why its coordinator cannot tell."""
        offsets = self.committed[row["group"]]
        if isinstance(offsets, KafkaError):
            return offsets
        znode, committed = self.znodes.get(_offset_key(row)), offsets.get(_topic_partition(row))
        return StoredOffsets(
            group=row["group"],
            topic_partition=_topic_partition(row),
            zookeeper=None if znode is None else znode.offset,
            kafka=None if committed is None else committed.offset,
        )


def _set_state(rows: Iterable[Row], state: str, error: str | None) -> None:
    for row in rows:
        row["state"], row["error"] = state, error


def _problem(codes: Codes | KafkaError, topic_partition: TopicPartition) -> str | None:
    """What went wrong with one offset of a group; None for nothing."""
    if isinstance(codes, KafkaError):
        return why(codes)
    code = codes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    return why(KafkaError(code)) if code else None


def _failed(row: Row, error: str) -> Row:
    found: dict[str, Any] = {name: row[name] for name in ("group", "topic", "partition")}
    outcome = {"zk_offset": row["offset"], "state": "failed", "action": SKIP, "error": error}
    return {**dict.fromkeys(SCHEMA.names), **found, **outcome}


def _store(row: Row) -> str:
    return _STORES[row["action"]]


def _offset_key(row: Row) -> StoredOffsetKey:
    return StoredOffsetKey(row["group"], _topic_partition(row))


def _topic_partition(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])
