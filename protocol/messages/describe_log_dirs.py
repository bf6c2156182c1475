"""DescribeLogDirs (key 35): shows what the log directories of a broker hold.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message(key=35, versions=(0, 4), advertised=4, flexible=2)
class DescribeLogDirsRequest:
    """Which partitions to show; None shows all."""

    topics: Sequence[Topic] | None = wire(array(Topic), null_since=0)


@message()
class PartitionResult:
    """One replica: its size, and how far behind it is."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


@message()
class TopicResult:
    """The replicas of one topic in a directory."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message()
class Result:
    """One directory."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
    total_bytes: int = wire(INT64, since=4, default=-1)
    usable_bytes: int = wire(INT64, since=4, default=-1)


@message(key=35, versions=(0, 4), advertised=4, flexible=2)
class DescribeLogDirsResponse:
    """The directories."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, since=3)
    results: Sequence[Result] = wire(array(Result))
