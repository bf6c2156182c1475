"""ApiVersions (key 18): tells which APIs and versions a broker serves.

Source: docs/spec/protocol.md §2; §1.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, array, message, wire


@message(key=18, versions=(0, 4), advertised=4, flexible=3)
class ApiVersionsRequest:
    """Who asks; from v3 with the name of its software."""

    client_software_name: str = wire(STRING, since=3)
    client_software_version: str = wire(STRING, since=3)


@message()
class ApiVersion:
    """The versions of one API."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message()
class SupportedFeature:
    """The levels of one feature this broker can work at."""

    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message()
class FinalizedFeature:
    """The levels of one feature in force in the cluster."""

    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """The APIs, and the features of the cluster."""

    error_code: int = wire(INT16)
    api_keys: Sequence[ApiVersion] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, since=1)
    supported_features: Sequence[SupportedFeature] = wire(array(SupportedFeature), since=3, tag=0)
    finalized_features_epoch: int = wire(INT64, since=3, tag=1, default=-1)
    finalized_features: Sequence[FinalizedFeature] = wire(array(FinalizedFeature), since=3, tag=2)
    zk_migration_ready: bool = wire(BOOL, since=3, tag=3)
