"""DescribeUserScramCredentials (key 50): shows who has SCRAM credentials.

Source: docs/spec/protocol.md §2; KIP-554.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message()
class User:
    """One user."""

    name: str = wire(STRING)


@message(key=50, versions=(0, 0), advertised=0, flexible=0)
class DescribeUserScramCredentialsRequest:
    """The users to show; None or none at all shows everyone."""

    users: Sequence[User] | None = wire(array(User), null_since=0)


@message()
class CredentialInfo:
    """One credential, without its secret."""

    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@message()
class Result:
    """One user's credentials."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    credential_infos: Sequence[CredentialInfo] = wire(array(CredentialInfo))


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    """The users found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    results: Sequence[Result] = wire(array(Result))
