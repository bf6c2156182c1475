"""RenewDelegationToken (key 39): has a token hold for longer.

Source: docs/spec/protocol.md §2; KIP-48.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import BYTES, INT16, INT32, INT64, message, wire


@message(key=39, versions=(0, 2), advertised=2, flexible=2)
class RenewDelegationTokenRequest:
    """For how long from now; -1 is the node's setting."""

    hmac: bytes = wire(BYTES)
    renew_period_ms: int = wire(INT64)


@message(key=39, versions=(0, 2), flexible=2)
class RenewDelegationTokenResponse:
    """When the token ends now; -1 beside an error."""

    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64)
    throttle_time_ms: int = wire(INT32)
