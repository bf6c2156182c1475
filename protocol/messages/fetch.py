"""Fetch (key 1): reads record batches, for consumers and followers.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §3.4; KIP-227 (v7), KIP-320 (v9), KIP-516
(v13).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Buffer,
    array,
    message,
    nested,
    wire,
)


@message()
class ReplicaState:
    """Which follower asks, from v15; consumers leave it out."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


@message()
class Partition:
    """Where to read in one partition."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: bytes = wire(UUID, since=17, tag=0)


@message()
class Topic:
    """The partitions of one topic to read."""

    topic: str = wire(STRING, until=12)
    topic_id: bytes = wire(UUID, since=13)
    partitions: Sequence[Partition] = wire(array(Partition))


@message()
class ForgottenTopic:
    """Partitions to drop from an incremental fetch session."""

    topic: str = wire(STRING, until=12)
    topic_id: bytes = wire(UUID, since=13)
    partitions: Sequence[int] = wire(array(INT32))


@message(key=1, versions=(0, 17), advertised=17, flexible=12)
class FetchRequest:
    """Where to read, how much, and how long to wait for it."""

    cluster_id: str | None = wire(STRING, since=12, null_since=12, tag=0, default=None)
    replica_id: int = wire(INT32, until=14, default=-1)
    """-1 for a consumer; the node id of a follower up to v14."""
    replica_state: ReplicaState | None = wire(nested(ReplicaState), since=15, tag=1, default=None)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, since=3, default=2147483647)
    isolation_level: int = wire(INT8, since=4)
    """0 reads everything up to the high watermark, 1 up to the last stable offset."""
    session_id: int = wire(INT32, since=7)
    session_epoch: int = wire(INT32, since=7, default=-1)
    """0 opens a session, -1 closes it or does without."""
    topics: Sequence[Topic] = wire(array(Topic))
    forgotten_topics_data: Sequence[ForgottenTopic] = wire(array(ForgottenTopic), since=7)
    rack_id: str = wire(STRING, since=11)


@message()
class DivergingEpoch:
    """Where the log of the reader left ours: it must cut its own there."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message()
class CurrentLeader:
    """Whom to ask instead, with NOT_LEADER_OR_FOLLOWER."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message()
class SnapshotId:
    """The snapshot to fetch instead; metadata quorums only."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@message()
class AbortedTransaction:
    """A transaction whose records a read_committed reader must drop."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@message()
class PartitionResult:
    """What was read of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, since=4, default=-1)
    """Equal to the high watermark while no transaction is open."""
    log_start_offset: int = wire(INT64, since=5, default=-1)
    diverging_epoch: DivergingEpoch | None = wire(
        nested(DivergingEpoch), since=12, tag=0, default=None
    )
    current_leader: CurrentLeader | None = wire(
        nested(CurrentLeader), since=12, tag=1, default=None
    )
    snapshot_id: SnapshotId | None = wire(nested(SnapshotId), since=12, tag=2, default=None)
    aborted_transactions: Sequence[AbortedTransaction] | None = wire(
        array(AbortedTransaction), since=4, null_since=4
    )
    preferred_read_replica: int = wire(INT32, since=11, default=-1)
    records: Buffer | None = wire(RECORDS, null_since=0)
    """Whole batches; the first may begin before the offset asked for."""


@message()
class TopicResult:
    """What was read of one topic."""

    topic: str = wire(STRING, until=12)
    topic_id: bytes = wire(UUID, since=13)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message()
class NodeEndpoint:
    """The address of a leader named in this answer."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, null_since=0, default=None)


@message(key=1, versions=(0, 17), flexible=12)
class FetchResponse:
    """The batches found, and what the reader must know of each partition."""

    throttle_time_ms: int = wire(INT32, since=1)
    error_code: int = wire(INT16, since=7)
    session_id: int = wire(INT32, since=7)
    responses: Sequence[TopicResult] = wire(array(TopicResult))
    node_endpoints: Sequence[NodeEndpoint] = wire(array(NodeEndpoint), since=16, tag=0)
