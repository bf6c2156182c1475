"""SaslHandshake and SaslAuthenticate: the two requests by which a peer proves who it is.

Source: docs/spec/protocol.md §2 (keys 17 and 36); docs/spec/security.md §2 (S21 to S24).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from barnabas.broker.security.sasl import SaslServer, Stage
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse

from .call import Answer, Call, Handler


def handlers() -> Mapping[int, Handler]:
    """What to register with the dispatcher."""
    return {ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: authenticate}


def handshake(call: Call) -> Answer | Awaitable[Answer]:
    """Agree on a mechanism; a peer that cannot is told what there is, and has to go."""
    sasl = call.peer.sasl
    if sasl is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        sasl.choose(call.request.mechanism, call.version)
    except Refused as refusal:
        answer = SaslHandshakeResponse(error_code=refusal.code, mechanisms=sasl.mechanisms)
        return _refused(call, sasl, answer)
    return SaslHandshakeResponse(mechanisms=sasl.mechanisms)


def authenticate(call: Call) -> Answer | Awaitable[Answer]:
    """Check the peer's token; a wrong one ends the connection."""
    sasl = call.peer.sasl
    if sasl is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="this listener asks for no proof",
        )
    try:
        token = sasl.evaluate(call.request.auth_bytes)
    except Refused as refusal:
        return _refused(call, sasl, _failure(refusal))
    return _success(sasl, token) if isinstance(token, bytes) else _awaited(call, sasl, token)


async def _awaited(call: Call, sasl: SaslServer, token: Awaitable[bytes]) -> Answer:
    try:
        return _success(sasl, await token)
    except Refused as refusal:
        return await _close_later(call, sasl, _failure(refusal))


def _success(sasl: SaslServer, token: bytes) -> SaslAuthenticateResponse:
    lifetime_ms = sasl.session_lifetime_ms if sasl.stage is Stage.DONE else 0
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)


def _failure(refusal: Refused) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=refusal.code, error_message=refusal.message)


def _refused(call: Call, sasl: SaslServer, answer: Any) -> Answer | Awaitable[Answer]:
    """The answer; where the login is over it comes later, and the connection ends with it."""
    return _close_later(call, sasl, answer) if sasl.stage is Stage.FAILED else answer


async def _close_later(call: Call, sasl: SaslServer, answer: Any) -> Answer:
    # Nothing else is served meanwhile: nothing passes a request of this kind (request_order.py).
    await asyncio.sleep(sasl.failure_delay_s(call.peer.host))
    call.peer.close()
    return answer
