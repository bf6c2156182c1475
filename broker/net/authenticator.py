"""Stands in for the dispatcher until a peer has proved who it is, and where its proof ends again.

Until then nothing is parsed but the requests that lead there. Source: docs/spec/security.md §2
(S20 to S24, S38); docs/spec/cluster.md §2.14.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from struct import Struct
from typing import Any, Final

from barnabas.broker.handlers.call import Peer, PendingResponse
from barnabas.broker.security.sasl import SaslServer, Stage
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import CorruptRequest, ErrorCode, Refused

from .dispatch import (
    WAIT_MS,
    CloseConnection,
    Dispatcher,
    EncodedResponse,
    Frame,
    ResponseFrame,
)
from .framing import FRAME_BYTES_MIN, KEY_BYTES, LENGTH_BYTES, Framing
from .request_order import NO_KEYS

log = logging.getLogger(__name__)

API_VERSIONS_MAX: Final = 8
"""How often a stranger may ask what is served: once more after each version that is not."""
_KEY: Final = Struct(">h").unpack_from
_LENGTH: Final = Struct(">i").pack


class _BareToken:
    """How the answer to a bare token is written: its length, then itself."""

    name = "bare SASL token"
    version = 0
    is_sent_in_pieces = False
    prefix_bytes = 0

    @staticmethod
    def prefix(size: int, _correlation_id: int) -> bytes:
        """What stands before the token."""
        return _LENGTH(size)


class Authenticator:
    """Lets through what a peer may ask at its stage."""

    def __init__(self, sasl: SaslServer, framing: Framing, dispatcher: Dispatcher) -> None:
        self._sasl = sasl
        self._framing = framing
        self._dispatcher = dispatcher
        self._questions_left = API_VERSIONS_MAX

    def dispatch(self, frame: Frame, peer: Peer) -> ResponseFrame | PendingResponse | None:
        """As the dispatcher; raises CorruptRequest for what closes the connection."""
        stage = self._sasl.stage
        if stage is Stage.BARE_TOKEN:
            return self._bare_token(bytes(frame[LENGTH_BYTES:]), peer)
        if len(frame) < LENGTH_BYTES + KEY_BYTES:
            raise CorruptRequest(f"a frame of {len(frame)} bytes holds no header")
        key: int = _KEY(frame, LENGTH_BYTES)[0]
        if stage is Stage.HANDSHAKE:
            self._check_first_request(key)
        elif stage is Stage.DONE:
            if key != ApiKey.SASL_HANDSHAKE and self._sasl.has_expired():
                self._sasl.note_expired()
                raise CorruptRequest("its session has ended")
        elif key != ApiKey.SASL_AUTHENTICATE:
            refusal = Refused(ErrorCode.ILLEGAL_SASL_STATE, "a token was expected")
            peer.close()
            return self._dispatcher.refuse(frame, peer, refusal)
        reply = self._dispatcher.dispatch(frame, peer)
        # A bare token may be shorter than any request, or empty.
        is_bare = self._sasl.stage is Stage.BARE_TOKEN
        self._framing.bytes_min = 0 if is_bare else FRAME_BYTES_MIN
        return reply

    def _check_first_request(self, key: int) -> None:
        if key == ApiKey.API_VERSIONS:
            self._questions_left -= 1
            if self._questions_left < 0:
                raise CorruptRequest("asks for the versions again and again")
        elif key != ApiKey.SASL_HANDSHAKE:
            raise CorruptRequest("before authentication")

    def _bare_token(self, token: bytes, peer: Peer) -> ResponseFrame | PendingResponse:
        try:
            answer = self._sasl.evaluate(token)
        except Refused as refusal:
            return self._pending(self._close_later(refusal, peer))
        if isinstance(answer, bytes):
            return _LENGTH(len(answer)) + answer
        return self._pending(self._answer_later(answer, peer))

    def _pending(self, coroutine: Coroutine[Any, Any, Any]) -> PendingResponse:
        """The answer that a coroutine gives; nothing behind it starts before."""
        pending = PendingResponse()
        pending.route, pending.correlation_id, pending.held = _BareToken, 0, 0
        pending.allowed_behind, pending.wait_ms, pending.members = NO_KEYS, WAIT_MS, ()
        task = self._dispatcher.run(_respond(pending, coroutine), _BareToken.name)
        task.add_done_callback(lambda _: coroutine.close())  # perhaps never begun
        return pending

    async def _answer_later(
        self, answer: Awaitable[bytes], peer: Peer
    ) -> EncodedResponse | CloseConnection:
        try:
            return EncodedResponse(await answer)
        except Refused as refusal:
            return await self._close_later(refusal, peer)

    async def _close_later(self, refusal: Refused, peer: Peer) -> CloseConnection:
        """There is no answer for a bare token that is wrong: the connection just ends."""
        await asyncio.sleep(self._sasl.failure_delay_s(peer.host))
        return CloseConnection(None, f"authentication failed: {refusal.code.name}")


async def _respond(pending: PendingResponse, coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        pending.respond(await coroutine)
    except Exception:
        log.exception("a login failed by a bug of ours")
        pending.respond(CloseConnection(None))
