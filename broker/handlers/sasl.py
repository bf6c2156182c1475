"""SaslHandshake and SaslAuthenticate: the two requests by which a peer proves who it is.

Source: docs/spec/protocol.md §2 (keys 17 and 36); the rules are in security/sasl.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.security.sasl import MECHANISMS
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse

from .call import Call, Handler


def handlers() -> Mapping[int, Handler]:
    """What to register with the dispatcher."""
    return {ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: authenticate}


def handshake(call: Call) -> SaslHandshakeResponse:
    """Agree on a mechanism; a peer that cannot is told what there is, and has to go."""
    code = ErrorCode.NONE
    if call.peer.sasl is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        call.peer.sasl.choose(call.request.mechanism, call.version)
    except Refused as refusal:
        code = refusal.code
        call.peer.close()
    return SaslHandshakeResponse(error_code=code, mechanisms=MECHANISMS)


def authenticate(call: Call) -> SaslAuthenticateResponse:
    """Check the peer's token; a wrong one ends the connection."""
    if call.peer.sasl is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="this listener asks for no proof",
        )
    try:
        call.peer.sasl.authenticate(call.request.auth_bytes)
    except Refused as refusal:
        call.peer.close()
        return SaslAuthenticateResponse(error_code=refusal.code, error_message=refusal.message)
    return SaslAuthenticateResponse()
