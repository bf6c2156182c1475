"""What clients' requests cost is counted, and who is over a quota is told so and not read.

    request -> counted: bytes of a Produce -> handler -> counted: its time, bytes of a Fetch answer
                        time to read it               -> answer, with throttle_time_ms, at once
                                                      -> counted: time to write it
                                                      -> nothing is read for as long

The answer leaves at once, so that a client that knows the field waits by itself, and one that does
not is slowed down by TCP (KIP-219). Routes are wrapped while there is a quota and not otherwise
(Dispatcher.throttle). Source: docs/spec/security.md §4 (S60, S61); Kafka 3.9 KafkaApis.
"""

from __future__ import annotations

import copy
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from barnabas.broker.handlers.call import Call, Handler, Peer, PendingResponse, is_coroutine
from barnabas.broker.handlers.throttled_calls import client_of
from barnabas.broker.quota.client_quotas import ClientQuotas
from barnabas.broker.security.sasl import Stage
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch

from .dispatch import Frame, Route
from .framing import LENGTH_BYTES

EXEMPT: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)
"""Between nodes, or before it is known whose quota it would be."""
ANSWER_DECIDES: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS})
"""Whether their time counts, or what is left of them, is known with the answer only."""
PERCENT: Final = 100.0
ANSWER_BYTES: Final = 64
"""Of a Fetch answer besides records: its heads, once for it and once for each partition."""

ForgetTold = Callable[[fetch.FetchResponse], None]
"""Told of an answer that its reader never gets, before it is emptied (FetchSessionCache)."""


class RequestThrottling:
    """Counts by user and client id; ``now`` and ``clock`` give seconds, ``clock`` fine ones."""

    def __init__(
        self,
        quotas: ClientQuotas,
        *,
        now: Callable[[], float],
        forget_told: ForgetTold,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._quotas = quotas
        self._now = now
        self._forget_told = forget_told
        self.clock = clock

    def count(self, route: Route) -> None:
        """Have the requests of a route counted, unless its API is exempt."""
        if route.key in EXEMPT:
            return
        handler = route.handler
        if route.key == ApiKey.PRODUCE:
            handler = self._producing(route, handler)
        elif route.key == ApiKey.FETCH:
            handler = self._fetching(handler)
        timed = _Timed(self, route)
        route.handler = self._timed(
            handler, timed, has_field="throttle_time_ms" in route.response_fields
        )

    async def counted(self, call: Call, work: Coroutine[Any, Any, Any]) -> Any:
        """What is read or written over several turns; what passes between them counts not."""
        steps: list[float] = []
        try:
            return await _stepped(work, self.clock, steps.append)
        finally:
            self.spent(call, sum(steps))

    def spent(self, call: Call, seconds: float) -> None:
        """Count time beside that of the handler; who is over a quota is not read for as long."""
        if call.key in EXEMPT or call.key == ApiKey.WRITE_TXN_MARKERS or _is_stranger(call):
            return
        throttle_ms = self._quotas.request.record(*client_of(call), seconds * PERCENT, self._now())
        if throttle_ms:
            call.peer.throttle(throttle_ms / 1000)

    # --- bytes ---------------------------------------------------------------------------------

    def _producing(self, route: Route, handler: Handler) -> Handler:
        """Count the bytes of the request that is decoded next, in the same turn of the loop."""
        decode, size = route.decode, 0

        def decoded(frame: Frame, start: int) -> Any:
            nonlocal size
            size = len(frame) - LENGTH_BYTES
            return decode(frame, start)

        def counted(call: Call) -> Any:
            throttle_ms = self._quotas.producer.record(*client_of(call), size, self._now())
            answer = handler(call)
            if not throttle_ms:
                return answer
            # At once, not with the answer: that may wait for replicas, and more would come.
            call.peer.throttle(throttle_ms / 1000)
            return _with_answer(answer, lambda given: _tell(given, throttle_ms))

        route.decode = decoded
        return counted

    def _fetching(self, handler: Handler) -> Handler:
        quota = self._quotas.consumer

        def counted(call: Call) -> Any:
            most = quota.window_most(*client_of(call))
            if most is not None:
                request: fetch.FetchRequest = call.request
                # More than the quota allows in all its windows would throttle for ever.
                request.max_bytes = min(request.max_bytes, int(most))
                request.min_bytes = min(request.min_bytes, request.max_bytes)
            return _with_answer(handler(call), lambda given: self._fetched(call, given))

        return counted

    def _fetched(self, call: Call, answer: Any) -> Any:
        """The answer, or an empty one where it exceeds the quota: its bytes are not given then."""
        if not isinstance(answer, fetch.FetchResponse) or answer.error_code:
            return answer
        size, now = _size(answer), self._now()
        throttle_ms = self._quotas.consumer.record(*client_of(call), size, now)
        if not throttle_ms:
            return answer
        return self._emptied(call, answer, size, throttle_ms)

    def _emptied(self, call: Call, answer: fetch.FetchResponse, size: int, throttle_ms: int) -> Any:
        self._quotas.consumer.take_back(*client_of(call), size, self._now())
        # Else what the session takes for told would not be told again.
        self._forget_told(answer)
        call.peer.throttle(throttle_ms / 1000)
        return fetch.FetchResponse(
            throttle_time_ms=throttle_ms, session_id=answer.session_id, responses=[]
        )

    # --- time ----------------------------------------------------------------------------------

    def _timed(self, handler: Handler, around: _Timed, *, has_field: bool) -> Handler:
        clock = self.clock

        def timed(call: Call) -> Any:
            began = clock()
            answer = handler(call)
            spent = clock() - began + around.read()
            if is_coroutine(answer):
                return self._finish_later(call, answer, spent, has_field=has_field)
            if type(answer) is PendingResponse and call.key not in ANSWER_DECIDES:
                return self._begun(call, answer, spent)
            if type(answer) is not PendingResponse:
                around.is_written_for = call
            return _with_answer(
                answer, lambda given: self._worked(call, given, spent, has_field=has_field)
            )

        return timed

    def _begun(self, call: Call, answer: PendingResponse, seconds: float) -> Any:
        """Count the time of a request whose answer is to come, and throttle at once.

        Not with the answer: all requests behind it in the pipeline would have begun by then.
        """
        if _is_stranger(call):
            return answer
        throttle_ms = self._quotas.request.record(*client_of(call), seconds * PERCENT, self._now())
        if not throttle_ms:
            return answer
        call.peer.throttle(throttle_ms / 1000)
        return _with_answer(answer, lambda given: _tell(given, throttle_ms))

    async def _finish_later(
        self,
        call: Call,
        coroutine: Coroutine[Any, Any, Any],
        spent: float,
        *,
        has_field: bool,
    ) -> Any:
        """Count the time of each of its steps on the loop, not what passes between them."""
        steps = [spent]
        answer = await _stepped(coroutine, self.clock, steps.append)
        # It may answer with a PendingResponse still: whoever made the task waits for that.
        return _with_answer(
            answer, lambda given: self._worked(call, given, sum(steps), has_field=has_field)
        )

    def _worked(self, call: Call, answer: Any, seconds: float, *, has_field: bool) -> Any:
        if answer is None or _is_exempt(call, answer):
            return answer
        percent = seconds * PERCENT
        throttle_ms = self._quotas.request.record(*client_of(call), percent, self._now())
        if not throttle_ms:
            return answer
        if isinstance(answer, fetch.FetchResponse) and answer.responses:
            return self._emptied(call, answer, _size(answer), throttle_ms)
        call.peer.throttle(throttle_ms / 1000)
        return _tell(answer, throttle_ms) if has_field else answer


class _Timed:
    """What reading a request and writing its answer takes, in the turn that serves it.

    Answers that come later, to a Fetch that waits for instance, are short, or slices of files:
    writing those counts for nobody.
    """

    def __init__(self, throttling: RequestThrottling, route: Route) -> None:
        self.is_written_for: Call | None = None
        """Whose answer is written next, in this turn of the loop."""
        self._throttling = throttling
        self._seconds = 0.0
        route.decode = self._decoding(route.decode)
        route.encode = self._encoding(route.encode)

    def read(self) -> float:
        """How long the request took that was read just now; once."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _decoding(self, decode: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
        clock = self._throttling.clock

        def decoded(frame: Frame, start: int) -> Any:
            self.is_written_for = None
            began = clock()
            request = decode(frame, start)
            self._seconds = clock() - began
            return request

        return decoded

    def _encoding(self, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        clock = self._throttling.clock

        def encoded(answer: Any) -> bytes:
            call, self.is_written_for = self.is_written_for, None
            if call is None:
                return encode(answer)
            began = clock()
            try:
                return encode(answer)
            finally:
                self._throttling.spent(call, clock() - began)

        return encoded


def _tell(answer: Any, throttle_ms: int) -> Any:
    """An answer that says how long its client should wait: the longest of all reasons."""
    if not hasattr(answer, "throttle_time_ms"):
        return answer
    # A copy: handlers give one answer to many, as that of a commit which succeeded, and what is
    # written into it would be told to all others from then on
    # (test_what_one_client_is_told_to_wait_is_told_to_nobody_else).
    told = copy.copy(answer)
    told.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
    return told


def _is_exempt(call: Call, answer: Any) -> bool:
    """Whether the time of a request does not count: strangers', and markers of those who may."""
    if _is_stranger(call):
        return True
    return call.key == ApiKey.WRITE_TXN_MARKERS and not any(
        partition.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    )


def _is_stranger(call: Call) -> bool:
    peer: Peer = call.peer
    return peer.sasl is not None and peer.sasl.stage is not Stage.DONE


def _size(answer: fetch.FetchResponse) -> int:
    """About as many bytes as the answer takes: all of its records, and their frame roughly."""
    return ANSWER_BYTES + sum(
        ANSWER_BYTES + len(partition.records or b"")
        for topic in answer.responses
        for partition in topic.partitions
    )


def _with_answer(answer: Any, then: Callable[[Any], Any]) -> Any:
    """``then`` of the answer in its place, once it is there."""
    if is_coroutine(answer):
        return _later(answer, then)
    if type(answer) is not PendingResponse:
        return then(answer)
    if answer.is_resolved:
        answer.answer = then(answer.answer)
        return answer

    # Before the connection's own, which is added when the handler has returned.
    def replace(pending: PendingResponse) -> None:
        pending.answer = then(pending.answer)

    answer.add_done_callback(replace)
    return answer


async def _later(coroutine: Coroutine[Any, Any, Any], then: Callable[[Any], Any]) -> Any:
    return _with_answer(await coroutine, then)


@types.coroutine
def _stepped(
    coroutine: Coroutine[Any, Any, Any], clock: Callable[[], float], spent: Callable[[float], None]
) -> Generator[Any, Any, Any]:
    """Run a coroutine; ``spent`` is told how long each of its steps took."""
    step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731 - the first of many
    while True:
        began = clock()
        try:
            waits_for = step()
        except StopIteration as stop:
            return stop.value
        finally:
            spent(clock() - began)
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's: a cancellation, say
            step = _throwing(coroutine, error)
        else:
            step = _sending(coroutine, value)


def _throwing(coroutine: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)


def _sending(coroutine: Coroutine[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: coroutine.send(value)
