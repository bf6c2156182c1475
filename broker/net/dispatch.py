"""From a frame to its answer: one table of handlers, one cached codec for each key and version.

    frame -> Route -> decode -> handler -> a response           encoded and sent at once
                                        -> a PendingResponse    sent when somebody responds
                                        -> a coroutine          a task of its own, for rare APIs
    frame above 64 KiB -> a task that decodes it in turns, then the same

Source: docs/spec/protocol.md §1.3 and §2.1 (ApiVersions exceptions, unknown APIs close).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import TYPE_CHECKING, Any

from barnabas.broker.handlers.call import (
    Call,
    Handler,
    LongCall,
    Peer,
    PendingResponse,
    is_coroutine,
    response_of,
)
from barnabas.broker.handlers.cooperative import run_to_end
from barnabas.protocol import api
from barnabas.protocol.codec.compiler import (
    chunk_encoder,
    chunk_encoder_in_turns,
    encoder,
    encoder_in_turns,
    request_decoder,
    request_decoder_in_turns,
    view_decoder,
)
from barnabas.protocol.codec.wire import Buffer, schema_of
from barnabas.protocol.errors import CorruptRequest, ErrorCode, Refused
from barnabas.protocol.frame import parse_request_header, response_prefix
from barnabas.protocol.messages import api_versions

from . import request_order
from .file_sender import FramePiece
from .framing import LENGTH_BYTES
from .handler_task import HandlerTask
from .limits import LIST_BYTES_MAX
from .request_order import WAITS_FOR_OTHERS

if TYPE_CHECKING:
    from .throttle import RequestThrottling

log = logging.getLogger(__name__)

Frame = bytes | memoryview
"""A request with its length; a view is only valid, and may be written into, until it is served."""

ResponseFrame = bytes | list[FramePiece]
"""A whole response frame: in one piece, or in pieces that are too large to join."""

API_VERSIONS = 18
WAIT_FIELDS = ("timeout_ms", "max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms")
"""Where requests say how long they may wait: the watchdog logs those that wait twice as long."""
WAIT_MS = 30_000
"""What a request without one of these may wait: request.timeout.ms of Kafka's clients."""
SYNC_WAIT_MS = 300_000
"""A SyncGroup waits for the leader, as long as max.poll.interval.ms gives it by default."""
DECODED_AT_ONCE = frozenset({api.ApiKey.PRODUCE, *request_order.MEMBERSHIP})
"""Read at once however long they are: few elements, or who asks is compared with who waits."""

CARRIES_PAYLOAD = frozenset({api.ApiKey.PRODUCE, api.ApiKey.JOIN_GROUP, api.ApiKey.SYNC_GROUP})
"""What carries the bytes of others: records, and what the members of a group tell each other."""

CANCELLABLE = request_order.QUERIES | {
    api.ApiKey.FETCH,
    api.ApiKey.OFFSET_FETCH,
    api.ApiKey.OFFSET_COMMIT,
}
"""Wherever their handlers are stopped nothing is half done: a commit is staged in one turn."""

LONG_BYTES = 64 << 10
"""A longer request is read over several turns of the loop.

Not to be confused with that of connection_scheduler.py: after 8 KiB the clock is looked at.
"""

UNENCODABLE = "its answer cannot be encoded"
UNENCODABLE_LINE = "could not encode an answer api=%s version=%d"

HEADER_BYTES_MAX = 64 << 10
"""A client id has at most half of it; what lies behind is not looked at for the log."""

# int32 length | int16 key, int16 version | int32 correlation id | int16 client id length
# Key and version are read as one int32, by which routes are kept: one look-up instead of two.
_HEAD = Struct(">iiih").unpack_from
_HEAD_BYTES = 14
# int32 length | int32 correlation id | in flexible versions an empty tag section
_PREFIXES = (Struct(">ii").pack, Struct(">iix").pack)


class CloseConnection:
    """Stands for an answer that cannot be given: the connection is closed instead."""

    def __init__(
        self, client_id: str | None, reason: str = "it cannot say what went wrong"
    ) -> None:
        self.client_id = client_id
        self.reason = reason


class EncodedResponse:
    """Stands for an answer whose body is bytes already, or pieces of it."""

    __slots__ = ("body",)

    def __init__(self, body: bytes | list[Any]) -> None:
        self.body = body


class Route:
    """One API in one version: who serves it and how its bytes read.

    All that depends on them alone is found out when the first such request comes, so that serving
    one is a look-up by key and version and then reads of slots.
    """

    __slots__ = (
        "allowed_behind",
        "allowed_behind_coroutine",
        "decode",
        "encode",
        "encode_in_pieces",
        "handler",
        "header_version",
        "holds_request",
        "is_cancellable",
        "is_membership",
        "is_read_in_turns",
        "is_sent_in_pieces",
        "is_served_under_lock",
        "key",
        "name",
        "prefix",
        "prefix_bytes",
        "request",
        "response",
        "response_fields",
        "version",
        "wait_field",
        "wait_ms",
    )

    def __init__(
        self, spec: api.ApiSpec, version: int, handler: Handler, *, is_internal: bool
    ) -> None:
        self.key = int(spec.key)
        self.version = version
        self.name = spec.name
        self.handler = handler
        # A Produce keeps its records as a view of the connection's buffer: a megabyte is not copied
        # before it is known to be valid (docs/architecture.md, "The way of bulk").
        read = view_decoder if spec.key == api.ApiKey.PRODUCE else request_decoder
        self.decode: Callable[[Any, int], Any] = read(spec.request, version)
        self.encode: Callable[[Any], bytes] = encoder(spec.response, version)
        self.encode_in_pieces: Callable[[Any], list[Buffer]] = chunk_encoder(spec.response, version)
        self.request = spec.request
        self.response = spec.response
        self.response_fields = frozenset(
            field.name for field in schema_of(spec.response).fields if field.exists(version)
        )
        self.header_version = api.request_header_version(spec.key, version)
        header_version = api.response_header_version(spec.key, version)
        self.prefix: Callable[[int, int], bytes] = _PREFIXES[header_version]
        """What stands before the body, from the size of all but the size itself."""
        self.prefix_bytes = LENGTH_BYTES + header_version
        asked = {field.name for field in schema_of(spec.request).fields if field.exists(version)}
        may_wait = spec.key != api.ApiKey.CONSUMER_GROUP_HEARTBEAT  # names a time, but not its own
        self.wait_field = next((name for name in WAIT_FIELDS if may_wait and name in asked), "")
        """Where a request says how long it may wait; empty where it does not."""
        self.wait_ms = SYNC_WAIT_MS if spec.key == api.ApiKey.SYNC_GROUP else WAIT_MS
        self.is_sent_in_pieces = self.key == api.ApiKey.FETCH
        """Its answer may be large: not joined."""
        self.is_membership = self.key in request_order.MEMBERSHIP
        is_between_nodes = is_internal and self.key == api.ApiKey.FETCH
        self.is_read_in_turns = not (
            self.key in DECODED_AT_ONCE or spec.is_inter_broker or is_between_nodes
        )
        """Whether a long one is. Orders between nodes must not overtake each other, and their
        fetches wait for no client."""
        self.is_served_under_lock = self.key in request_order.QUERIES - WAITS_FOR_OTHERS
        """Its handler waits for nobody else."""
        self.is_cancellable = self.key in CANCELLABLE
        """Whether its handler may be stopped when a peer that sent a long one is gone."""
        self.allowed_behind = request_order.allowed_behind(self.key, version)
        """What may start while a request like this waits for its answer."""
        self.allowed_behind_coroutine = (
            self.allowed_behind if spec.is_inter_broker else request_order.NO_KEYS
        )
        """The same while its handler is a coroutine, which may not have changed anything yet."""
        self.holds_request = self.key != api.ApiKey.PRODUCE
        """A parked produce request keeps nothing: its records are in the log already."""


def response_frame(route: Any, correlation_id: int, answer: Any) -> ResponseFrame | None:
    """The response frame for ``answer``; what may be large stays in pieces.

    ``route`` is a Route, or reads like one (authenticator.py). None when nothing is to be sent.
    Raises CorruptRequest when the connection has to be closed instead.
    """
    if answer is None:
        return None
    if type(answer) is CloseConnection:
        raise _with_sender(CorruptRequest(answer.reason), route, answer.client_id)
    try:
        if route.is_sent_in_pieces:
            pieces = (
                answer.body if type(answer) is EncodedResponse else route.encode_in_pieces(answer)
            )
            # Not joined: a piece may be a slice of a file, or a megabyte that would be copied.
            size = sum(map(len, pieces))
            return [route.prefix(route.prefix_bytes + size, correlation_id), *pieces]
        body: Any = answer.body if type(answer) is EncodedResponse else route.encode(answer)
    except Exception:
        log.exception(UNENCODABLE_LINE, route.name, route.version)
        # Not left out: clients fail on an answer that is not that of their oldest request.
        raise _with_sender(CorruptRequest(UNENCODABLE), route, None) from None
    frame: bytes = route.prefix(route.prefix_bytes + len(body), correlation_id) + body
    return frame


class Dispatcher:
    """Knows every handler of this node; shared by its listeners.

    ``tasks`` owns the coroutines of handlers that wait for others.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[bool, dict[int, Route]] = {False: {}, True: {}}
        self._throttling: RequestThrottling | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._long_request_lock = asyncio.Lock()
        """One long request or answer at a time: each takes a hundred times its size of memory."""
        self._query_locks: dict[int, AbstractAsyncContextManager[Any]] = {
            int(key): asyncio.Lock() for key in WAITS_FOR_OTHERS
        }
        """One long request at a time of each API that waits for others. They wait outside of the
        lock above, which all long requests need, and still there are not as many of them in memory
        as there are connections."""

    def register(self, handlers: Mapping[int, Handler]) -> None:
        """Serve these APIs from now on, by key.

        A second handler of one API would replace the first and nobody would notice: asserted.
        """
        for key, handler in handlers.items():
            assert key not in self._handlers, f"two handlers for api key {key}"
            assert api.lookup(key) is not None, f"api key {key} is not declared"
            self._handlers[int(key)] = handler

    def throttle(self, throttling: RequestThrottling | None) -> None:
        """Have the requests of clients counted from now on, or (None) no more.

        Every route is made anew, so that where nobody has a quota the way of a request is as short
        as if there were none.
        """
        self._throttling = throttling
        self._routes = {False: {}, True: {}}

    def supported_versions(self, peer: Peer) -> list[tuple[int, int]]:
        """Key and highest version of each API that ``peer`` is told of, in order of key."""
        offers = []
        for key in sorted(self._handlers):
            spec = api.lookup(key)
            assert spec is not None
            highest = _highest(spec, peer.is_internal)
            if highest is not None:
                offers.append((key, highest))
        return offers

    def dispatch(  # noqa: C901 - every call less is a microsecond less for each request
        self, frame: Frame, peer: Peer
    ) -> ResponseFrame | PendingResponse | None:
        """Serve one frame, length included; what comes back goes out in the order of arrival.

        Raises CorruptRequest when the connection has to be closed.
        """
        # Else unpacking would raise struct.error, which reads like a bug of ours in the log.
        if len(frame) < _HEAD_BYTES:
            raise CorruptRequest(f"a frame of {len(frame)} bytes holds no header")
        _, key_and_version, correlation_id, name_length = _HEAD(frame)
        try:
            # One table for each kind of listener: a client must not reach a control request by a
            # route that a node's request has opened.
            known = self._routes[peer.is_internal].get(key_and_version)
            route = known or self._route(key_and_version, peer)
            if route is None:
                return _unknown_api_versions(correlation_id)
            is_long = len(frame) > LONG_BYTES
            if is_long:
                _check_length(route, len(frame), peer)
            client_id, start = _client_id(frame, name_length, route.header_version)
            if is_long and route.is_read_in_turns:
                return self._serve_long_request(
                    route, frame, start, correlation_id, client_id, peer
                )
            request = route.decode(frame, start)
            try:
                answer = route.handler(Call(route.key, route.version, client_id, request, peer))
            # On purpose: with acks=0 there is no response, and closing is how Kafka tells, too.
            except CorruptRequest:
                raise
            except Exception as error:  # noqa: BLE001 - judged in one place
                answer = _error_response(route, error, client_id)
        except CorruptRequest as problem:
            _identify_sender(problem, frame)
            raise
        is_started, kind = False, type(answer)
        if kind is not PendingResponse and kind is not route.response and is_coroutine(answer):
            handler_task = HandlerTask(is_cancellable=False)
            handler_task.call = Call(route.key, route.version, client_id, None, peer)
            answer, is_started = self._start_task(route, answer, client_id, handler_task), True
        if type(answer) is PendingResponse:
            if not answer.is_resolved:
                answer.route, answer.correlation_id = route, correlation_id
                # What was appended lives in the log. Of any other request the decoded form lives on
                # in the handler: it stays charged, or clients could have unbounded memory held by
                # waiting.
                answer.held = len(frame) if route.holds_request or is_started else 0
                answer.allowed_behind = (
                    route.allowed_behind_coroutine if is_started else route.allowed_behind
                )
                answer.wait_ms = (
                    getattr(request, route.wait_field) if route.wait_field else route.wait_ms
                )
                answer.members = request_order.members(request) if route.is_membership else ()
                return answer
            answer = answer.answer
        return response_frame(route, correlation_id, answer)

    def refuse(self, frame: Frame, peer: Peer, refusal: Refused) -> ResponseFrame | None:
        """The answer to a request that is not read, in its own shape; raises CorruptRequest."""
        if len(frame) < _HEAD_BYTES:
            raise CorruptRequest(f"a frame of {len(frame)} bytes holds no header")
        _, key_and_version, correlation_id, _ = _HEAD(frame)
        route = self._route(key_and_version, peer)
        if route is None:
            return _unknown_api_versions(correlation_id)
        return response_frame(route, correlation_id, _error_response(route, refusal, None))

    def run(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the node at the latest."""
        task = self._tasks.create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def members(self, frame: Frame, peer: Peer) -> frozenset[tuple[str, ...]]:
        """Who sends a JoinGroup or SyncGroup; of others, or of bytes that are none, nobody."""
        try:
            _, key_and_version, _, name_length = _HEAD(frame)
            routes = self._routes[peer.is_internal]
            route = routes.get(key_and_version) or self._route(key_and_version, peer)
            if route is None or not route.is_membership:
                return frozenset()
            _, start = _client_id(frame, name_length, route.header_version)
            return request_order.members(route.decode(frame, start))
        except (CorruptRequest, StructError):
            return frozenset()  # told when the frame is served

    def _serve_long_request(
        self,
        route: Route,
        frame: Frame,
        start: int,
        correlation_id: int,
        client_id: str | None,
        peer: Peer,
    ) -> PendingResponse:
        """Serve a long request; nothing behind it on its connection starts before."""
        handler_task = HandlerTask(is_cancellable=True)
        # Copied: the next frame may be received into the memory that a view shows.
        coroutine = self._decode_in_turns(route, bytes(frame), start, client_id, peer, handler_task)
        pending = self._start_task(route, coroutine, client_id, handler_task)
        pending.route, pending.correlation_id, pending.held = route, correlation_id, len(frame)
        pending.allowed_behind, pending.wait_ms, pending.members = (
            route.allowed_behind_coroutine,
            WAIT_MS,
            (),
        )
        return pending

    def _start_task(
        self,
        route: Route,
        coroutine: Coroutine[Any, Any, Any],
        client_id: str | None,
        handler_task: HandlerTask,
    ) -> PendingResponse:
        """A task, always: stepped outside of one, a coroutine could use no asyncio.timeout."""
        handler_task.coroutine = coroutine
        pending = PendingResponse(handler_task.drop)
        resolution = self._resolve(route, handler_task, pending, client_id)
        handler_task.task = self.run(resolution, route.name)
        return pending

    async def _decode_in_turns(
        self,
        route: Route,
        frame: bytes,
        start: int,
        client_id: str | None,
        peer: Peer,
        handler_task: HandlerTask,
    ) -> Any:
        """Read a long request over several turns of the loop, and serve it then.

        Four megabytes take a second: others are served in between. Raises CorruptRequest.

        The lock of the API is taken first. The other way round a question that waits for its API's
        lock, and so for ZooKeeper, would hold the one that every long request needs
        (test_a_question_that_waits_for_zookeeper_holds_up_no_other_long_request).
        """
        async with self._query_locks.get(route.key) or nullcontext():
            async with self._long_request_lock:
                read = request_decoder_in_turns(route.request, route.version)
                handler_task.call = Call(route.key, route.version, client_id, None, peer)
                request = await self._counted(handler_task.call, run_to_end(read(frame, start)))
                # From here a handler runs. Stopped between two changes it would leave half of them,
                # and nobody would be told which.
                handler_task.is_cancellable = route.is_cancellable
                answer = route.handler(LongCall(route.key, route.version, client_id, request, peer))
                # Its answer is as large as its request, so that it is made under the lock. A
                # handler that waits for another node is not: it would hold up every long request
                # here.
                if route.is_served_under_lock and is_coroutine(answer):
                    answer = await answer
            if is_coroutine(answer):
                answer = await answer
            return await response_of(answer) if type(answer) is PendingResponse else answer

    async def _encode_in_turns(self, route: Route, answer: Any) -> Any:
        """The same as bytes, written over several turns where it is long."""
        if answer is None or type(answer) is CloseConnection:
            return answer
        encoder_of = chunk_encoder_in_turns if route.is_sent_in_pieces else encoder_in_turns
        try:
            writing: Any = encoder_of(route.response, route.version)(answer)
            # A short answer is encoded by the first step: it needs neither lock nor turn.
            try:
                next(writing)
            except StopIteration as stop:
                return EncodedResponse(stop.value)
            async with self._long_request_lock:
                return EncodedResponse(await run_to_end(writing))
        except Exception:
            log.exception(UNENCODABLE_LINE, route.name, route.version)
            return CloseConnection(None, UNENCODABLE)

    def _counted(self, call: Call, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """The same, on the account of a client where there are quotas."""
        throttling = None if call.peer.is_internal else self._throttling
        return work if throttling is None else throttling.counted(call, work)

    async def _resolve(
        self,
        route: Route,
        handler_task: HandlerTask,
        pending: PendingResponse,
        client_id: str | None,
    ) -> None:
        """Wait for a coroutine; whatever becomes of it, its peer alone is concerned.

        Nothing escapes but a cancellation: an exception would end the task group, and so the node.
        A task that was cancelled answers nothing: its peer is gone, or the node stops.
        """
        try:
            answer = await handler_task.begin()
            # The handler is done; what is left is only to tell a peer that may be gone.
            handler_task.is_cancellable = True
            writing = self._encode_in_turns(route, answer)
            pending.respond(await self._counted(handler_task.call, writing))
        except CorruptRequest as problem:
            pending.respond(CloseConnection(client_id, str(problem)))
        except Exception as error:  # noqa: BLE001 - judged in one place
            pending.respond(_error_response(route, error, client_id))

    def stop(self) -> None:
        """Abandon what handlers wait for: a client's patience must not keep the node alive."""
        for task in self._running:
            task.cancel()

    def _route(self, key_and_version: int, peer: Peer) -> Route | None:
        """Look a route up for the first time; None for ApiVersions in a version to come."""
        key = key_and_version >> 16
        version = (key_and_version & 0xFFFF ^ 0x8000) - 0x8000  # its sign bit counts
        spec = api.lookup(key)
        handler = self._handlers.get(key)
        # A client that asks what only nodes may ask is treated like one whose API does not exist.
        if spec is None or handler is None or (spec.is_inter_broker and not peer.is_internal):
            raise CorruptRequest(f"unknown api, version={version}")
        high = _highest(spec, peer.is_internal)
        # An unknown version closes the connection, as in Kafka: no response could be read by who
        # sent it. ApiVersions alone is answered, in version 0, so that a newer client falls back to
        # what is spoken here (KIP-511).
        if high is None or not 0 <= version <= high:
            if key == API_VERSIONS:
                return None
            raise CorruptRequest(f"unknown version={version}")
        route = Route(spec, version, handler, is_internal=peer.is_internal)
        if self._throttling is not None and not peer.is_internal:
            self._throttling.count(route)
        self._routes[peer.is_internal][key_and_version] = route
        return route


def _check_length(route: Route, size: int, peer: Peer) -> None:
    """Raises CorruptRequest for what a peer may not ask at such length."""
    # Lists cost the loop a microsecond a byte. Nodes are trusted, and payloads are no lists.
    if size > LIST_BYTES_MAX and not (peer.is_internal or route.key in CARRIES_PAYLOAD):
        raise CorruptRequest(f"a request of {size} bytes")


def _highest(spec: api.ApiSpec, is_internal: bool) -> int | None:
    """None where the peer may not ask: clients do not even learn of APIs between nodes."""
    if spec.is_inter_broker:
        return spec.versions[1] if is_internal else None
    return spec.advertised


def _client_id(frame: Frame, name_length: int, header_version: int) -> tuple[str | None, int]:
    """Client id and start of the body; the rare shapes are left to protocol/frame.py."""
    # Nearly every header has this shape, and the general parser takes several calls for it.
    end = _HEAD_BYTES + name_length
    is_tagged = header_version == 2
    if name_length < 0 or end >= len(frame) or not header_version or (is_tagged and frame[end]):
        header, start = parse_request_header(bytes(frame[LENGTH_BYTES:]))
        return header.client_id, start + LENGTH_BYTES
    # As in Java: a client id that is no UTF-8 is only shown, never a reason to refuse a client.
    return str(frame[_HEAD_BYTES:end], "utf-8", "replace"), end + is_tagged


def _unknown_api_versions(correlation_id: int) -> bytes:
    """The answer that lets a newer client try again: version 0's layout, error 35, our range."""
    spec = api.lookup(API_VERSIONS)
    assert spec is not None
    ours = api_versions.ApiVersion(
        api_key=API_VERSIONS, min_version=0, max_version=spec.versions[1]
    )
    answer = api_versions.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ours]
    )
    body = encoder(spec.response, 0)(answer)
    return response_prefix(correlation_id, 0, len(body)) + body


def _identify_sender(problem: CorruptRequest, frame: Frame) -> None:
    """Note API and client id, as far as the header can be read."""
    key = int.from_bytes(frame[LENGTH_BYTES : LENGTH_BYTES + 2], signed=True)
    spec = api.lookup(key)
    problem.api = f"key {key}" if spec is None else spec.name
    try:
        header, _ = parse_request_header(bytes(frame[LENGTH_BYTES:HEADER_BYTES_MAX]))
    except CorruptRequest:
        return  # it has no client id that could be read
    problem.client_id = header.client_id


def _with_sender(problem: CorruptRequest, route: Any, client_id: str | None) -> CorruptRequest:
    problem.api, problem.client_id = route.name, client_id
    return problem


def _error_response(route: Route, error: Exception, client_id: str | None) -> Any:
    """The answer to a request that failed: the refusal's code, or -1 after one traceback.

    Where the response has no error code of its own, a CloseConnection: the connection is closed.
    """
    code, text = ErrorCode.UNKNOWN_SERVER_ERROR, ""
    if isinstance(error, Refused):
        code, text = error.code, error.message
    else:
        log.error("handler failed api=%s version=%d", route.name, route.version, exc_info=error)
    if "error_code" not in route.response_fields:
        return CloseConnection(client_id)
    if "error_message" in route.response_fields:
        return route.response(error_code=code, error_message=text or code.name)
    return route.response(error_code=code)
