"""How many requests of each API a node serves, how long they take, their bytes and their errors.

Only a node that tells metrics counts: its dispatcher hands out routes that count, so that the way
of a request is the same, and as short, on all others.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from barnabas.broker.handlers.call import Call, Handler, Peer, PendingResponse, is_coroutine
from barnabas.broker.net.dispatch import Dispatcher, EncodedResponse, Route
from barnabas.broker.net.handler_task import HandlerTask

from .error_codes import bounded_error_finder, counting_encoder, error_finder
from .slow_request_log import WAIT_BY_DESIGN, SlowRequestLog

BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0)
"""The last bucket of :attr:`RequestMeter.buckets` has no bound."""


class RequestMeter:
    """What is counted of one API, over all versions and listeners."""

    __slots__ = ("buckets", "bytes_in", "bytes_out", "errors", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        """Requests by the time from the call of their handler until their answer was there."""
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.errors: dict[int, int] = {}
        """How often answers carried which code: one may carry many, one for each partition."""

    def observe(self, seconds: float) -> None:
        """One more request was answered."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds

    def note_error(self, code: int) -> None:
        """An answer carried a code that is not 0."""
        self.errors[code] = self.errors.get(code, 0) + 1


class MeteredDispatcher(Dispatcher):
    """A dispatcher whose routes count; ``meters`` by the name of the API."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float] = time.perf_counter,
        slow: SlowRequestLog | None = None,
    ) -> None:
        """``slow`` is told of every request that does not wait by design."""
        super().__init__(tasks)
        self.meters: dict[str, RequestMeter] = {}
        self._clock = clock
        self._slow = slow

    def _route(self, key_and_version: int, peer: Peer) -> Route | None:
        route = super()._route(key_and_version, peer)
        if route is not None:
            meter = self.meters.setdefault(route.name, RequestMeter())
            if self._slow is not None and route.name not in WAIT_BY_DESIGN:
                route.handler = _noticed(route.handler, route.name, self._slow, self._clock)
            route.handler = _timed(route.handler, meter, self._clock)
            _count_content(route, meter)
        return route

    # What is read or written over several turns passes by the codecs that count.

    def _decode_in_turns(
        self,
        route: Route,
        frame: bytes,
        start: int,
        client_id: str | None,
        peer: Peer,
        handler_task: HandlerTask,
    ) -> Coroutine[Any, Any, Any]:
        self.meters[route.name].bytes_in += len(frame)
        return super()._decode_in_turns(route, frame, start, client_id, peer, handler_task)

    async def _encode_in_turns(self, route: Route, answer: Any) -> Any:
        meter = self.meters[route.name]
        if type(answer) is route.response:
            bounded_error_finder(route.response, route.version)(answer, meter.note_error)
        encoded = await super()._encode_in_turns(route, answer)
        if type(encoded) is EncodedResponse:
            body = encoded.body
            size = len(body) if isinstance(body, bytes) else sum(map(len, body))
            meter.bytes_out += size + route.prefix_bytes + 4
        return encoded


def _timed(handler: Handler, meter: RequestMeter, clock: Callable[[], float]) -> Handler:
    """``handler``, and how long its answers take noted."""
    buckets = meter.buckets

    def responded(began: float, _: PendingResponse) -> None:
        seconds = clock() - began
        buckets[bisect_left(BOUNDS_S, seconds)] += 1
        meter.seconds += seconds

    def timed(call: Call) -> Any:
        began = clock()
        answer: Any = None
        try:
            answer = handler(call)
        finally:
            # Not the call: what a parked request has sent is to be forgotten.
            if type(answer) is PendingResponse and not answer.is_resolved:
                answer.add_done_callback(partial(responded, began))
            elif is_coroutine(answer):
                answer = _awaited(answer, lambda: meter.observe(clock() - began))
            else:
                seconds = clock() - began
                buckets[bisect_left(BOUNDS_S, seconds)] += 1
                meter.seconds += seconds
        return answer

    return timed


def _noticed(
    handler: Handler, api: str, slow: SlowRequestLog, clock: Callable[[], float]
) -> Handler:
    """``handler``, and the log of slow requests told how long each answer took."""

    def noticed(call: Call) -> Any:
        began = clock()
        answer = None
        try:
            answer = handler(call)
        finally:
            if type(answer) is PendingResponse and not answer.is_resolved:
                answer.add_done_callback(lambda _: slow.notice(api, call, clock() - began))
            elif is_coroutine(answer):
                answer = _awaited(answer, lambda: slow.notice(api, call, clock() - began))
            else:
                slow.notice(api, call, clock() - began)
        return answer

    return noticed


async def _awaited(answer: Coroutine[Any, Any, Any], over: Callable[[], None]) -> Any:
    try:
        return await answer
    finally:
        over()


def _count_content(route: Route, meter: RequestMeter) -> None:
    decode, encode, encode_in_pieces = route.decode, route.encode, route.encode_in_pieces
    around = route.prefix_bytes + 4

    def decoded(frame: Any, start: int) -> Any:
        meter.bytes_in += len(frame)
        return decode(frame, start)

    def in_pieces(answer: Any) -> Any:
        pieces = encode_in_pieces(answer)
        meter.bytes_out += sum(map(len, pieces)) + around
        find(answer, meter.note_error)
        return pieces

    find = error_finder(route.response, route.version)
    route.decode, route.encode_in_pieces = decoded, in_pieces
    route.encode = counting_encoder(route.response, route.version, encode, meter, around)
