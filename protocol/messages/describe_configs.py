"""DescribeConfigs (key 32): shows the settings of topics and brokers.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT8, INT16, INT32, STRING, array, message, wire


@message()
class Resource:
    """One resource, and which of its settings."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: Sequence[str] | None = wire(array(STRING), null_since=0)
    """None asks for all."""


@message(key=32, versions=(0, 4), advertised=4, flexible=4)
class DescribeConfigsRequest:
    """Whose settings to show."""

    resources: Sequence[Resource] = wire(array(Resource))
    include_synonyms: bool = wire(BOOL, since=1)
    include_documentation: bool = wire(BOOL, since=3)


@message()
class Synonym:
    """A value that would hold if those before it did not."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, null_since=0)
    source: int = wire(INT8)


@message()
class Config:
    """One setting: its value and where that comes from."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, null_since=0)
    read_only: bool = wire(BOOL)
    is_default: bool = wire(BOOL, until=0)
    config_source: int = wire(INT8, since=1, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: Sequence[Synonym] = wire(array(Synonym), since=1)
    config_type: int = wire(INT8, since=3)
    documentation: str | None = wire(STRING, since=3, null_since=0)


@message()
class Result:
    """The settings of one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[Config] = wire(array(Config))


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsResponse:
    """The settings found."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[Result] = wire(array(Result))
