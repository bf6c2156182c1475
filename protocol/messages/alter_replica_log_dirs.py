"""AlterReplicaLogDirs (key 34): moves replicas between log directories.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message()
class Dir:
    """What one directory is to receive."""

    path: str = wire(STRING)
    topics: Sequence[Topic] = wire(array(Topic))


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    """Which replicas go where."""

    dirs: Sequence[Dir] = wire(array(Dir))


@message()
class PartitionResult:
    """The outcome for one replica."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message()
class TopicResult:
    """The outcomes for one topic."""

    topic_name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """The outcome for each replica."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[TopicResult] = wire(array(TopicResult))
