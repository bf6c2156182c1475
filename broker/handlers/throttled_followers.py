"""Reads for followers while replicas are being moved at a bounded rate (KIP-73).

Source: docs/spec/security.md §4 (S66); Kafka 3.9 ReplicaManager.shouldLeaderThrottle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.broker.quota.replication_quotas import ReplicationQuota
from barnabas.broker.replication.replica_manager import ReplicaManager

from .call import Call
from .fetch_sessions import PartitionRead

Read = Callable[[Call, Sequence[PartitionRead], int, bool], tuple[int, bool]]
"""Fills in results: of so many bytes, the first whole; what is left, and if there was none yet."""


class ThrottledFollowers:
    """Reads as ``read`` does, but no records for a throttled replica above the rate."""

    def __init__(self, quota: ReplicationQuota, replicas: ReplicaManager, read: Read) -> None:
        self._quota = quota
        self._replicas = replicas
        self._read = read

    def read(
        self, call: Call, reads: Sequence[PartitionRead], left: int, is_first: bool
    ) -> tuple[int, bool]:
        """One by one: what one was given counts before the next is read.

        A replica that is held back is told everything else, the high watermark above all. One that
        is in sync never waits: acks=all waits for it.
        """
        node, quota = call.request.replica_id, self._quota
        if node < 0:
            return self._read(call, reads, left, is_first)
        for read in reads:
            topic, index = read.topic, read.partition.partition
            partition = self._replicas.get(topic, index)
            is_in_sync = partition is not None and node in partition.isr
            is_held_back = not is_in_sync and quota.holds_back(topic, index)
            after = self._read(call, (read,), left, is_first)
            if is_held_back:
                read.result.records = b""
                continue
            left, is_first = after
            # Of what is read twice, since it was too little the first time, a part counts twice:
            # less than `replica.fetch.min.bytes`.
            quota.record(topic, index, len(read.result.records or b""))
        return left, is_first
