"""CreateAcls (key 30): adds access rules.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message()
class Creation:
    """One rule to add."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, since=1, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(key=30, versions=(0, 3), advertised=3, flexible=2)
class CreateAclsRequest:
    """The rules to add."""

    creations: Sequence[Creation] = wire(array(Creation))


@message()
class Result:
    """The outcome for one rule."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsResponse:
    """The outcome for each rule."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[Result] = wire(array(Result))
