"""UpdateFeatures (key 57): changes the features in force.

Source: docs/spec/protocol.md §2; KIP-584.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT8, INT16, INT32, STRING, array, message, wire


@message()
class FeatureUpdate:
    """One feature and its level."""

    feature: str = wire(STRING)
    max_version_level: int = wire(INT16)
    allow_downgrade: bool = wire(BOOL, until=0)
    upgrade_type: int = wire(INT8, since=1, default=1)


@message(key=57, versions=(0, 1), advertised=1, flexible=0)
class UpdateFeaturesRequest:
    """The levels that features are to have."""

    timeout_ms: int = wire(INT32, default=60000)
    feature_updates: Sequence[FeatureUpdate] = wire(array(FeatureUpdate))
    validate_only: bool = wire(BOOL, since=1)


@message()
class Result:
    """The outcome for one feature."""

    feature: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)


@message(key=57, versions=(0, 1), flexible=0)
class UpdateFeaturesResponse:
    """The outcome for each feature."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    results: Sequence[Result] = wire(array(Result))
