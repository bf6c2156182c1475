"""IncrementalAlterConfigs (key 44): changes single settings of topics and brokers.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT8, INT16, INT32, STRING, array, message, wire


@message()
class Config:
    """One change of one setting."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    """0 set, 1 delete, 2 append to a list, 3 take from a list."""
    value: str | None = wire(STRING, null_since=0)


@message()
class Resource:
    """One resource and its changes."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[Config] = wire(array(Config))


@message(key=44, versions=(0, 1), advertised=1, flexible=1)
class IncrementalAlterConfigsRequest:
    """The changes to each resource."""

    resources: Sequence[Resource] = wire(array(Resource))
    validate_only: bool = wire(BOOL)


@message()
class ResourceResult:
    """The outcome for one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message(key=44, versions=(0, 1), advertised=1, flexible=1)
class IncrementalAlterConfigsResponse:
    """The outcome for each resource."""

    throttle_time_ms: int = wire(INT32)
    responses: Sequence[ResourceResult] = wire(array(ResourceResult))
