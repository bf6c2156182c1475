"""The audit history of committed offsets, read from ``__barnabas_audit``.

Source: docs/spec/coordinator.md §3.8; protocol/audit_topic.py has the format.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import entries, fetch_batches
from barnabas.client.errors import KafkaError
from barnabas.protocol.audit_topic import AUDIT_TOPIC, AuditRecord, parse_audit_value
from barnabas.protocol.errors import CorruptRequest, ErrorCode

from .admin import Admin

log = logging.getLogger(__name__)


async def read_audit(
    admin: Admin, wanted: Callable[[AuditRecord], bool], *, since_ms: int | None = None
) -> list[AuditRecord]:
    """Every record that is ``wanted``, the oldest first; what is not is not kept in memory.

    ``since_ms`` is the earliest time to look at.
    Empty where there is no history: nothing was changed yet, or the cluster keeps none. The same
    record may stand there twice, when its writer was not sure that it had arrived. Raises
    KafkaError.
    """
    answer = await admin.cluster.metadata([AUDIT_TOPIC])
    (topic,) = answer.topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    topic_partitions = [
        TopicPartition(AUDIT_TOPIC, partition.partition_index) for partition in topic.partitions
    ]
    starts = await admin.start_offsets(topic_partitions)
    if since_ms is not None:
        found = await admin.offsets_at(topic_partitions, max(0, since_ms))
        starts = {
            topic_partition: starts[topic_partition] if at is None else at
            for topic_partition, at in found.items()
        }
    ends = await admin.end_offsets(topic_partitions)
    for topic_partition in topic_partitions:
        if topic_partition not in starts or topic_partition not in ends:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{AUDIT_TOPIC}-{topic_partition.partition}"
            )
    parts = await asyncio.gather(
        *(
            _read(
                admin.cluster,
                topic_partition,
                starts[topic_partition],
                ends[topic_partition],
                wanted,
            )
            for topic_partition in topic_partitions
        )
    )
    records = [
        record
        for part in parts
        for record in part
        if since_ms is None or record.time_ms >= since_ms
    ]
    return sorted(records, key=lambda record: record.time_ms)


async def _read(
    cluster: Cluster,
    topic_partition: TopicPartition,
    start: int,
    end: int,
    wanted: Callable[[AuditRecord], bool],
) -> list[AuditRecord]:
    return [
        record async for record in _records(cluster, topic_partition, start, end) if wanted(record)
    ]


async def _records(
    cluster: Cluster, topic_partition: TopicPartition, start: int, end: int
) -> AsyncIterator[AuditRecord]:
    position = start
    while position < end:
        data = await fetch_batches(cluster, topic_partition, position)
        before = position
        for entry, record in entries(data, position).records(position):
            position = entry.last_offset + 1
            if record.value is not None:
                try:
                    yield parse_audit_value(bytes(record.value))
                except CorruptRequest as error:
                    log.warning("skipped a record at=%d: %s", record.offset, error)
        if position <= before:
            return  # the log was cut meanwhile
