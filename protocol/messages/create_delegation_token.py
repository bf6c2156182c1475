"""CreateDelegationToken (key 38): has a token made that its holder may log in by.

Source: docs/spec/protocol.md §2; KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BYTES, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Renewer:
    """One who may renew and end the token, beside its owner."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message(key=38, versions=(0, 3), advertised=3, flexible=2)
class CreateDelegationTokenRequest:
    """Whose token it is to be; None is whoever asks. A lifetime of -1 is the longest there is."""

    owner_principal_type: str | None = wire(STRING, since=3, null_since=3)
    owner_principal_name: str | None = wire(STRING, since=3, null_since=3)
    renewers: Sequence[Renewer] = wire(array(Renewer))
    max_lifetime_ms: int = wire(INT64)


@message(key=38, versions=(0, 3), flexible=2)
class CreateDelegationTokenResponse:
    """The token; ``hmac`` is its secret."""

    error_code: int = wire(INT16)
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, since=3)
    token_requester_principal_name: str = wire(STRING, since=3)
    issue_timestamp_ms: int = wire(INT64)
    expiry_timestamp_ms: int = wire(INT64)
    max_timestamp_ms: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: bytes = wire(BYTES)
    throttle_time_ms: int = wire(INT32)
