"""DescribeDelegationToken (key 41): shows tokens, with their secrets, to who may see them.

Source: docs/spec/protocol.md §2; KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BYTES, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Owner:
    """Somebody whose tokens are asked for."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message(key=41, versions=(0, 3), advertised=3, flexible=2)
class DescribeDelegationTokenRequest:
    """Whose tokens to show; None is everybody's, an empty list nobody's."""

    owners: Sequence[Owner] | None = wire(array(Owner), null_since=0)


@message()
class Renewer:
    """One who may renew and end the token, beside its owner."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message()
class Token:
    """One token; ``hmac`` is its secret."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, since=3)
    token_requester_principal_name: str = wire(STRING, since=3)
    issue_timestamp: int = wire(INT64)
    expiry_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: bytes = wire(BYTES)
    renewers: Sequence[Renewer] = wire(array(Renewer))


@message(key=41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenResponse:
    """The tokens found."""

    error_code: int = wire(INT16)
    tokens: Sequence[Token] = wire(array(Token))
    throttle_time_ms: int = wire(INT32)
