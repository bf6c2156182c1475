"""ExpireDelegationToken (key 40): has a token end, now or soon.

Source: docs/spec/protocol.md §2; KIP-48.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import BYTES, INT16, INT32, INT64, message, wire


@message(key=40, versions=(0, 2), advertised=2, flexible=2)
class ExpireDelegationTokenRequest:
    """For how long from now it holds; -1 ends it at once."""

    hmac: bytes = wire(BYTES)
    expiry_time_period_ms: int = wire(INT64)


@message(key=40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenResponse:
    """When the token ends now; -1 beside an error."""

    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64)
    throttle_time_ms: int = wire(INT32)
