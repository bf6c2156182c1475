"""AlterConfigs (key 33): replaces the settings of topics and brokers.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT8, INT16, INT32, STRING, array, message, wire


@message()
class Config:
    """One setting."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, null_since=0)


@message()
class Resource:
    """One resource and all its settings."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[Config] = wire(array(Config))


@message(key=33, versions=(0, 2), advertised=2, flexible=2)
class AlterConfigsRequest:
    """All settings that each resource is to have."""

    resources: Sequence[Resource] = wire(array(Resource))
    validate_only: bool = wire(BOOL)


@message()
class ResourceResult:
    """The outcome for one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@message(key=33, versions=(0, 2), advertised=2, flexible=2)
class AlterConfigsResponse:
    """The outcome for each resource."""

    throttle_time_ms: int = wire(INT32)
    responses: Sequence[ResourceResult] = wire(array(ResourceResult))
