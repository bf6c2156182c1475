"""Which records a reset means: the first one that is read again, the last one that is skipped.

Of at most twenty partitions, 64 KiB a read; of the others the counts are told.
Source: docs/spec/console.md §1 (preview).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import (
    codes_of,
    entries,
    fetch_request_of,
    partition_result_of,
)
from barnabas.client.errors import KafkaError
from barnabas.console.groups.plan import OffsetChange, offset_of
from barnabas.console.web.records.decoding import decode
from barnabas.console.web.records.masking import Mask, Masks
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.walk import Entry

PARTITIONS_MOST: Final = 20
BYTES: Final = 64 << 10
KEY_CHARACTERS: Final = 60
_MAGIC_WITH_CONTROL: Final = 2


@dataclass(frozen=True, slots=True)
class Glance:
    """A record as a preview shows it: no value."""

    offset: int
    timestamp_ms: int | None
    key: str | None
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """For programs and templates."""
        return {
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "key": self.key,
            "bytes": self.bytes,
        }


async def previews(
    cluster: Cluster, changes: Sequence[OffsetChange], masks: Masks
) -> dict[TopicPartition, tuple[Glance | None, Glance | None]]:
    """The first and the last record that a change reads again, or skips; None where none is found.

    A key that a mask hides is hidden here, too.
    """
    wanted = [change for change in changes if _range(change) is not None][:PARTITIONS_MOST]
    found = await asyncio.gather(
        *(_ends(cluster, change, masks.of(change.topic_partition.topic)) for change in wanted)
    )
    return dict(zip((change.topic_partition for change in wanted), found, strict=True))


def _range(change: OffsetChange) -> tuple[int, int] | None:
    """From where up to where records are read again, or skipped; None for other changes."""
    old, new = offset_of(change.old), offset_of(change.new)
    if old is None or new is None or old == new:
        return None
    return min(old, new), max(old, new)


async def _ends(
    cluster: Cluster, change: OffsetChange, mask: Mask | None
) -> tuple[Glance | None, Glance | None]:
    bounds = _range(change)
    assert bounds is not None
    start, end = bounds
    try:
        first = await _records(cluster, change.topic_partition, start, end)
        last = await _records(cluster, change.topic_partition, end - 1, end)
    except (KafkaError, CorruptRecords, OSError):
        return None, None
    return (
        _glance(first[0], mask) if first else None,
        _glance(last[-1], mask) if last else None,
    )


async def _records(cluster: Cluster, place: TopicPartition, start: int, end: int) -> list[Record]:
    """Records of this range, as many as one read brings; markers of transactions apart."""
    request = fetch_request_of(place, start, bytes_max=BYTES)
    answer = await cluster.to_leader(place, request, codes_of)
    data = bytes(partition_result_of(answer).records or b"")
    return [
        record
        for entry in entries(data, start)
        if not _is_control(entry)
        for record in batch.records(entry.data)
        if start <= record.offset < end
    ]


def _is_control(entry: Entry) -> bool:
    return entry.magic == _MAGIC_WITH_CONTROL and batch.is_control(entry.data)


def _glance(record: Record, mask: Mask | None) -> Glance:
    found = decode(record.key)
    key = (found if mask is None else mask.field("key", found)).text
    size = len(record.key or b"") + len(record.value or b"")
    return Glance(
        record.offset,
        record.timestamp if record.timestamp >= 0 else None,
        key and key[:KEY_CHARACTERS],
        size,
    )
