"""ListConfigResources (key 74): names what has settings; version 0 only of clients' metrics.

Source: docs/spec/protocol.md §2; KIP-1142 (v1), KIP-714 (v0, ListClientMetricsResources).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message(key=74, versions=(0, 1), advertised=1, flexible=0)
class ListConfigResourcesRequest:
    """Types, in the numbers of DescribeConfigs; none asks for all."""

    resource_types: Sequence[int] = wire(array(INT8), since=1)


@message()
class ConfigResource:
    """One resource."""

    resource_name: str = wire(STRING)
    resource_type: int = wire(INT8, since=1, default=16)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The resources found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    config_resources: Sequence[ConfigResource] = wire(array(ConfigResource))
