"""AlterUserScramCredentials (key 51): changes SCRAM credentials.

Source: docs/spec/protocol.md §2; KIP-554.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BYTES, INT8, INT16, INT32, STRING, array, message, wire


@message()
class Deletion:
    """One credential to remove."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@message()
class Upsertion:
    """One credential to set, already salted."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)


@message(key=51, versions=(0, 0), advertised=0, flexible=0)
class AlterUserScramCredentialsRequest:
    """Credentials to remove and to set."""

    deletions: Sequence[Deletion] = wire(array(Deletion))
    upsertions: Sequence[Upsertion] = wire(array(Upsertion))


@message()
class Result:
    """The outcome for one user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """The outcome for each user."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[Result] = wire(array(Result))
