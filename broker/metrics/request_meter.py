"""How many requests of each API a node serves, how long they take and how many bytes they move.

Only a node that tells metrics counts: its dispatcher hands out routes that count, so that the way
of a request is the same, and as short, on all others.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Final

from barnabas.broker.handlers.call import Call, Handler, Peer, PendingResponse
from barnabas.broker.net.dispatch import Dispatcher, Route

from .slow_request_log import WAIT_BY_DESIGN, SlowRequestLog

BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0)
"""The last bucket of :attr:`RequestMeter.buckets` has no bound."""


class RequestMeter:
    """What is counted of one API, over all versions and listeners."""

    __slots__ = ("buckets", "bytes_in", "bytes_out", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        """Requests by the time from the call of their handler until their answer was there."""
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0

    def observe(self, seconds: float) -> None:
        """One more request was answered."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds


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
                route.handler = self._noticed(route.handler, route.name, self._slow)
            route.handler = self._timed(route.handler, meter)
            _count_bytes(route, meter)
        return route

    def _timed(self, handler: Handler, meter: RequestMeter) -> Handler:
        return _with_duration(handler, self._clock, lambda call, seconds: meter.observe(seconds))

    def _noticed(self, handler: Handler, api: str, slow: SlowRequestLog) -> Handler:
        def notice(call: Call, seconds: float) -> None:
            slow.notice(api, call, seconds)

        return _with_duration(handler, self._clock, notice)


def _with_duration(
    handler: Handler, clock: Callable[[], float], told: Callable[[Call, float], None]
) -> Handler:
    """``handler``, and ``told`` how many seconds each answer took."""

    def timed(call: Call) -> Any:
        began = clock()
        answer = None
        try:
            answer = handler(call)
        finally:
            if type(answer) is PendingResponse and not answer.is_resolved:
                answer.add_done_callback(lambda _: told(call, clock() - began))
            elif type(answer) is CoroutineType:
                answer = _awaited(answer, lambda: told(call, clock() - began))
            else:
                told(call, clock() - began)
        return answer

    return timed


async def _awaited(answer: Coroutine[Any, Any, Any], over: Callable[[], None]) -> Any:
    try:
        return await answer
    finally:
        over()


def _count_bytes(route: Route, meter: RequestMeter) -> None:
    decode, encode, encode_in_pieces = route.decode, route.encode, route.encode_in_pieces
    around = route.prefix_bytes + 4

    def decoded(frame: Any, start: int) -> Any:
        meter.bytes_in += len(frame)
        return decode(frame, start)

    def encoded(answer: Any) -> bytes:
        body = encode(answer)
        meter.bytes_out += len(body) + around
        return body

    def in_pieces(answer: Any) -> Any:
        pieces = encode_in_pieces(answer)
        meter.bytes_out += sum(map(len, pieces)) + around
        return pieces

    route.decode, route.encode, route.encode_in_pieces = decoded, encoded, in_pieces
