"""A peer as handlers see it, and calls from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.broker.handlers.call import Call, PendingResponse, is_coroutine
from barnabas.broker.security.sasl import ANONYMOUS, SaslServer
from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decode, encode


@dataclass
class SomePeer:
    listener: str = "PLAINTEXT"
    is_internal: bool = False
    host: str = "127.0.0.1"
    sasl: SaslServer | None = None
    remembered: Any = None
    decisions: Any = None
    principal: str = ANONYMOUS
    is_node: bool = False
    is_closed: bool = False
    throttled_s: float = 0.0

    def has_left(self) -> bool:
        return self.is_closed

    def throttle(self, seconds: float) -> None:
        self.throttled_s = max(self.throttled_s, seconds)

    def close(self) -> None:
        self.is_closed = True


def call(
    message: Any, version: int, *, peer: SomePeer | None = None, client_id: str | None = "test"
) -> Call:
    """A call as it comes off the wire: fields that the version lacks are lost on the way."""
    spec = api.spec_of(type(message))
    request = decode(spec.request, version, encode(message, version))
    return Call(int(spec.key), version, client_id, request, peer or SomePeer())


def answered(answer: Any) -> Any:
    """The answer, which must be there; a coroutine may let others have their turn."""
    if is_coroutine(answer):
        try:
            while True:
                assert answer.send(None) is None, "it waits"
        except StopIteration as stop:
            return stop.value
    if isinstance(answer, PendingResponse):
        assert answer.is_resolved
        return answer.answer
    return answer


def over_the_wire(answer: Any, version: int) -> Any:
    """The answer as a client reads it."""
    return decode(type(answer), version, encode(answer, version))
