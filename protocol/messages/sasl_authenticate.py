"""SaslAuthenticate (key 36): carries the tokens of an authentication.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import BYTES, INT16, INT64, STRING, message, wire


@message(key=36, versions=(0, 2), advertised=2, flexible=2)
class SaslAuthenticateRequest:
    """A token from the client."""

    auth_bytes: bytes = wire(BYTES)


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """A token from the broker, or why there is none."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, since=1)
