"""DescribeCluster (key 60): describes the cluster to administrators.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT8, INT16, INT32, STRING, array, message, wire


@message(key=60, versions=(0, 1), advertised=1, flexible=0)
class DescribeClusterRequest:
    """What to tell."""

    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, since=1, default=1)


@message()
class Broker:
    """One broker."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, null_since=0, default=None)


@message(key=60, versions=(0, 1), flexible=0)
class DescribeClusterResponse:
    """The brokers and the controller."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0, default=None)
    endpoint_type: int = wire(INT8, since=1, default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: Sequence[Broker] = wire(array(Broker))
    cluster_authorized_operations: int = wire(INT32, default=-2147483648)
