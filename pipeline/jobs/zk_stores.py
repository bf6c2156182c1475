"""The offsets of one classic group in both stores: read, compared, brought to the same, put back.

The larger of the two wins, as it does for consumers with dual commit; a group that somebody
consumes in is left alone. What is written was read a moment before and is still the same: in
ZooKeeper by the znode's version, at the coordinator by the offset. Source: coordinator.md sections
6.7 and 6.8; pipeline.md section 12, job 3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from barnabas.client.cluster import TopicPartition
from barnabas.client.descriptions import Committed
from barnabas.client.ensemble import (
    BadVersion,
    NodeExists,
    NoNode,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.client.errors import KafkaError
from barnabas.protocol import znodes
from barnabas.protocol.errors import ErrorCode

from .group_work import Doors, Row, members_of, why

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
differs, rolled-back, moved, active or failed.
"""
NONE, TO_KAFKA, TO_ZOOKEEPER, SKIP = "none", "to-kafka", "to-zookeeper", "skip"


class Held(NamedTuple):
    """What one store holds of a partition; ``version`` is the znode's, -1 elsewhere."""

    offset: int
    version: int = -1


class Stores:
    """Both stores of one group."""

    def __init__(self, doors: Doors, group: str) -> None:
        self._admin = doors.admin
        self._zookeeper: ZooKeeper = doors.ensemble
        self._group = group
        self.kafka: dict[TopicPartition, Held] = {}
        self.zookeeper: dict[TopicPartition, Held] = {}

    async def look(self, places: Sequence[TopicPartition]) -> None:
        """Read what both hold now, of ``places`` and whatever else the coordinator has."""
        committed = await self._admin.committed_offsets(self._group)
        self.kafka = {place: Held(each.offset) for place, each in committed.items()}
        every = sorted({*places, *self.kafka})
        found = await asyncio.gather(*map(self._read, every))
        self.zookeeper = {
            place: held for place, held in zip(every, found, strict=True) if held is not None
        }

    async def activity(self) -> str | None:
        """Who consumes, by either protocol; None for a group at rest."""
        for path in (znodes.consumer_ids_path(self._group), f"/consumers/{self._group}/owners"):
            names = await _children(self._zookeeper, path)
            if path.endswith("/owners"):
                topics = [await _children(self._zookeeper, f"{path}/{name}") for name in names]
                names = [name for its in topics for name in its]
            if names:
                return f"active: {path} has {names[0]}"
        described = await self._admin.describe_group(self._group)
        return members_of(described.state, len(described.members))

    async def set_kafka(self, place: TopicPartition, offset: int | None) -> None:
        """Commit, or forget. Raises KafkaError."""
        if offset is None:
            codes = await self._admin.delete_offsets(self._group, [place])
        else:
            codes = await self._admin.alter_offsets(self._group, {place: Committed(offset=offset)})
        code = codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code:
            raise KafkaError(code, f"{self._group} {place.topic}-{place.partition}")

    async def set_zookeeper(self, place: TopicPartition, offset: int | None) -> None:
        """Write, make or remove the znode, unless it was written since it was read.

        Raises ZooKeeperError, BadVersion among them.
        """
        path = znodes.consumer_offset_path(self._group, place.topic, place.partition)
        held = self.zookeeper.get(place)
        if offset is None:
            if held is not None:
                with contextlib.suppress(NoNode):
                    await self._zookeeper.delete(path, held.version)
        elif held is None:
            await self._zookeeper.create(path, str(offset).encode(), parents=True)
        else:
            await self._zookeeper.set(path, str(offset).encode(), held.version)

    async def _read(self, place: TopicPartition) -> Held | None:
        path = znodes.consumer_offset_path(self._group, place.topic, place.partition)
        found = await read_if_any(self._zookeeper, path)
        if found is None:
            return None
        data, stat = found
        try:
            return Held(int(data), stat.version)
        except ValueError:
            return None


async def plan(doors: Doors, group: str, rows: list[Row]) -> list[Row]:
    """A row for every offset that either store has."""
    return await _plan(doors, group, rows, allows_active=False)


async def plan_even_active(doors: Doors, group: str, rows: list[Row]) -> list[Row]:
    """The same, for groups that somebody consumes in as well."""
    return await _plan(doors, group, rows, allows_active=True)


async def apply(doors: Doors, group: str, rows: list[Row]) -> list[Row]:
    """Bring both stores to the target, where they still hold what was planned with."""
    return await _write(doors, group, rows, said="migrated", is_back=False)


async def apply_even_active(doors: Doors, group: str, rows: list[Row]) -> list[Row]:
    """The same, whoever consumes; a coordinator still refuses a group with members."""
    return await _write(doors, group, rows, said="migrated", is_back=False, allows_active=True)


async def roll_back(doors: Doors, group: str, rows: list[Row]) -> list[Row]:
    """Put both stores back to what they held, where they still hold the target."""
    return await _write(doors, group, rows, said="rolled-back", is_back=True)


async def verify(doors: Doors, group: str, rows: list[Row]) -> list[Row]:
    """Read both again; ``zk_offset`` and ``kafka_offset`` are what they hold now."""
    stores = Stores(doors, group)
    try:
        await stores.look([_place(row) for row in rows])
    except (KafkaError, ZooKeeperError) as failure:
        return [{**row, "state": "failed", "error": _said(failure)} for row in rows]
    for row in rows:
        place = _place(row)
        row["zk_offset"] = _offset(stores.zookeeper, place)
        row["kafka_offset"] = _offset(stores.kafka, place)
        is_equal = row["zk_offset"] == row["kafka_offset"]
        row["state"], row["error"] = ("verified", None) if is_equal else ("differs", None)
    return rows


async def _plan(doors: Doors, group: str, rows: list[Row], *, allows_active: bool) -> list[Row]:
    stores = Stores(doors, group)
    try:
        await stores.look([_place(row) for row in rows])
        active = None if allows_active else await stores.activity()
    except (KafkaError, ZooKeeperError) as failure:
        failed = {"state": "failed", "action": SKIP, "error": _said(failure)}
        return [_row(group, _place(row), row["offset"], None, **failed) for row in rows]
    planned = []
    for place in sorted({*stores.zookeeper, *stores.kafka, *map(_place, rows)}):
        in_zookeeper, in_kafka = _offset(stores.zookeeper, place), _offset(stores.kafka, place)
        row = _row(group, place, in_zookeeper, in_kafka, **_chosen(in_zookeeper, in_kafka))
        if active is not None:
            row |= {"state": "active", "action": SKIP, "error": active}
        planned.append(row)
    return planned


def _chosen(in_zookeeper: int | None, in_kafka: int | None) -> dict[str, Any]:
    """What is to be done about two offsets: the larger one goes to the other store."""
    if in_zookeeper is None and in_kafka is None:
        return {"state": "failed", "action": SKIP, "error": "the znode holds no number"}
    target = max(each for each in (in_zookeeper, in_kafka) if each is not None)
    if in_zookeeper == in_kafka:
        return {"target": target, "state": "equal", "action": NONE}
    action = TO_KAFKA if in_zookeeper == target else TO_ZOOKEEPER
    return {"target": target, "state": "planned", "action": action}


async def _write(
    doors: Doors,
    group: str,
    rows: list[Row],
    *,
    said: str,
    is_back: bool,
    allows_active: bool = False,
) -> list[Row]:
    chosen = [row for row in rows if row["action"] in (TO_KAFKA, TO_ZOOKEEPER)]
    if not chosen:
        return rows
    stores = Stores(doors, group)
    try:
        active = None if allows_active else await stores.activity()
        await stores.look([_place(row) for row in chosen])
    except (KafkaError, ZooKeeperError) as failure:
        return _all(rows, chosen, "failed", _said(failure))
    if active is not None:
        return _all(rows, chosen, "active", active)
    for row in chosen:
        row["state"], row["error"] = await _written(stores, row, said, is_back=is_back)
    return rows


async def _written(stores: Stores, row: Row, said: str, *, is_back: bool) -> tuple[str, str | None]:
    """The state of one offset after it was written, and what went wrong."""
    place, is_kafka = _place(row), row["action"] == TO_KAFKA
    before = row["kafka_offset"] if is_kafka else row["zk_offset"]
    expected, wanted = (row["target"], before) if is_back else (before, row["target"])
    now = _offset(stores.kafka if is_kafka else stores.zookeeper, place)
    if now == wanted:
        return said, None
    if now != expected:
        return "moved", f"it is at {now}, not {expected}"
    try:
        if is_kafka:
            await stores.set_kafka(place, wanted)
        else:
            await stores.set_zookeeper(place, wanted)
    except (BadVersion, NodeExists):
        return "moved", "somebody wrote the znode meanwhile"
    except (KafkaError, ZooKeeperError) as failure:
        return "failed", _said(failure)
    return said, None


def _all(rows: list[Row], chosen: list[Row], state: str, error: str) -> list[Row]:
    for row in chosen:
        row["state"], row["error"] = state, error
    return rows


async def _children(zookeeper: ZooKeeper, path: str) -> list[str]:
    try:
        return await zookeeper.children(path)
    except NoNode:
        return []


def _said(failure: KafkaError | ZooKeeperError) -> str:
    return why(failure) if isinstance(failure, KafkaError) else repr(failure)


def _offset(store: dict[TopicPartition, Held], place: TopicPartition) -> int | None:
    held = store.get(place)
    return None if held is None else held.offset


def _place(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _row(
    group: str, place: TopicPartition, in_zookeeper: int | None, in_kafka: int | None, **more: Any
) -> Row:
    return {
        **dict.fromkeys(SCHEMA.names),
        "group": group,
        "topic": place.topic,
        "partition": place.partition,
        "zk_offset": in_zookeeper,
        "kafka_offset": in_kafka,
        **more,
    }
