"""One client's connection: frames to the dispatcher, answers out in order of arrival.

    transport -> framing -> may it start? -> dispatcher -> handler
                                                             |
    transport <- _out <- first of _waiting is there <- PendingResponse

Kafka serves one request of a connection at a time (KafkaChannel.mute). Here several may be under
way, so two orders are kept apart: requests start as request_order.py has it, and answers leave in
the order of their requests, since Kafka's Java client fails on an answer whose correlation id is
not that of its oldest request. Source: docs/spec/protocol.md §4.1 (one write for all answers of a
turn), docs/spec/reliability.md §8.2.

One idea, though long: what is read, what may start, what leaves and what is held all depend on the
same queue of answers. What can do without it has a file of its own: framing.py, authenticator.py,
connection_scheduler.py (turns), file_sender.py, connection_timeouts.py and limits.py (memory).
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.security.audit_log import CERTIFICATE
from barnabas.broker.security.cluster_secret import NODE_USER
from barnabas.broker.security.sasl import ANONYMOUS, SaslServer, Stage
from barnabas.broker.security.ssl_contexts import NoPrincipal
from barnabas.broker.storage.segment.file_slice import FileSlice
from barnabas.protocol.codec.wire import Buffer
from barnabas.protocol.errors import CorruptRequest

from . import request_order
from .authenticator import Authenticator
from .bulk_framing import BULK_BYTES_MIN, BulkFraming, receive_in_bulk
from .connection_scheduler import LONG_BYTES, SHARES_PER_VISIT
from .connection_timeouts import ConnectionActivity, ConnectionTimeouts
from .dispatch import Frame, ResponseFrame, response_frame
from .file_sender import FileSender, FramePiece
from .framing import Framing
from .gathered_write import write_pieces
from .limits import (
    PENDING_RESPONSES_MAX,
    SMALL_FRAME_BYTES_MAX,
    TINY_BYTES,
    WRITE_BUFFER_MAX,
    MemoryPool,
)
from .small_reads import SmallReceiver, StrangerReceiver

if TYPE_CHECKING:
    from .listener import Listener
    from .strangers import Stranger

NODE_PRINCIPAL = f"User:{NODE_USER}"
"""Whom the cluster's secret proves."""

Dispatch = Callable[[Frame, "Connection"], ResponseFrame | PendingResponse | None]
"""The dispatcher's, or an authenticator's that stands before it."""


class Connection(asyncio.Protocol):
    """Keeps the order of requests and answers, and stops reading before memory suffers.

    An answer that is there joins ``_out``; one that is to come, and all behind it, ``_waiting``.
    A request starts when those in ``_waiting`` let it: then its API is in ``_allowed_behind``,
    which may name too few APIs, never too many.

    There are four ways to stop, each with its own way back. *Blocked*: no further frame is served,
    because too many wait or the next one must not start yet; an answer ends it. *Held*: the node
    does not serve yet, or the peer is throttled; the listener or the time ends it. *Stalled*: the
    peer does not take its answers; the transport ends it when it has drained. *Paused*: nothing is
    read, so that bytes stay in the kernel and TCP slows the peer down; free memory ends it.
    """

    def __init__(
        self,
        listener: Listener,
        admitted_at: float | None = None,
        stood_for_by: Stranger | None = None,
    ) -> None:
        """``admitted_at``: when the quotas served it, where TLS had to be spoken first.

        ``stood_for_by`` was counted among the strangers until then.
        """
        self._listener = listener
        self._stood_for_by = stood_for_by
        self._admitted_at = admitted_at
        self._principal = ANONYMOUS
        self._requests = listener.limits.requests
        self.listener = listener.name
        self.is_internal = listener.is_internal
        self.host = ""
        self.remembered: Any = None
        self.decisions: Any = None
        self.sasl = listener.exchange()
        if self.sasl is not None:
            self._requests = listener.limits.stranger_requests[self.is_internal]
        self._framing: Framing | BulkFraming = Framing(listener.limits.frame_bytes_max)
        self._dispatch: Dispatch = listener.dispatcher.dispatch
        if self.sasl is not None:
            self._ask_for_proof(self.sasl)
        self._waiting: deque[PendingResponse | ResponseFrame] = deque()
        self._out: list[FramePiece] = []
        # Bytes, each of another place: in _out; ready in _waiting behind an answer that is not;
        # of the framing, as far as the pool of requests has counted them; in the transport, as far
        # as the pool of answers has. connection_lost gives back what a pool has counted.
        self._out_bytes = self._ready_bytes = self._charged = self._answer_bytes = 0
        self._allowed_behind: request_order.ApiKeys = request_order.ALL_KEYS
        self._has_slices = False
        self._is_heard = self._is_paused = self._is_stalled = self._is_queued = False
        self._is_admitted = self._is_closing = self._is_blocked = self.is_dirty = False
        self._is_held = False
        self._throttle_timer: asyncio.TimerHandle | None = None
        self.throttle_kind = ""
        """Why the peer is throttled now; empty while it is not."""
        # Bound once: looking the method up makes an object, and each request that waits needs it.
        self._response_ready = self._on_answer
        self._transport: asyncio.Transport
        self._sender: FileSender
        self._timeouts = ConnectionTimeouts(listener, self)

    def _ask_for_proof(self, sasl: SaslServer) -> None:
        # Whoever has not authenticated may not have a hundred megabytes held for one token.
        limits = self._listener.limits
        self._framing = framing = Framing(min(limits.frame_bytes_max, sasl.receive_bytes_max))
        self._dispatch = Authenticator(sasl, framing, self._listener.dispatcher).dispatch
        sasl.on_authenticated = partial(self._authenticated, sasl, framing)
        sasl.on_failure = partial(self._authentication_failed, sasl)

    @property
    def principal(self) -> str:
        """Who the peer has proved to be."""
        return self._principal if self.sasl is None else self.sasl.principal

    @property
    def is_made(self) -> bool:
        """Whether there is a transport; from then on the end of the connection is told to it."""
        return hasattr(self, "_transport")

    @property
    def is_node(self) -> bool:
        """Whether the peer has proved to be a node of this cluster, by secret or certificate.

        Without a proof anybody may dial the inter-broker listener.
        """
        if not self.is_internal:
            return False
        if self.sasl is None:
            return self._listener.admits_nodes_only
        return self.sasl.is_proved and self.sasl.principal == NODE_PRINCIPAL

    def has_left(self) -> bool:
        """Whether the peer has closed its side, though not all that it sent has been served.

        The kernel is asked: while a request waits, or after a pause of the whole node, the end of
        the connection lies behind bytes that are still to be read.
        """
        given = self._transport.get_extra_info("socket")
        if given is None:  # in a simulation
            return self._transport.is_closing()
        poll = select.poll()
        poll.register(given.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    # --- the transport tells -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or turn it away when there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._sender = FileSender(self._listener.loop, self._transport, self._on_sent)
        address = transport.get_extra_info("peername")
        self.host = str(address[0]) if address else ""
        now = self._listener.loop.time()
        has_shaken_hands = self._admitted_at is not None
        if self._stood_for_by is not None:
            self._listener.limits.strangers.leave(self._stood_for_by)
            self._stood_for_by = None
        self._is_admitted = has_shaken_hands or self._admit(now)
        if not self._is_admitted or (has_shaken_hands and not self._has_principal()):
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        self._listener.entered(self)
        if self.sasl is not None and not self.is_internal:
            self._listener.limits.strangers.enter(self)
        # Before the listener serves, its port is bound but the node is not registered: an answer
        # would come from a node that nobody leads to yet (docs/spec/cluster.md §7).
        self._is_held = self._is_blocked = not self._listener.is_serving
        if self._admitted_at is None:
            waited_s = -self._hold_above_rates(now)
        else:
            waited_s = now - self._admitted_at
        self._timeouts.start(is_unauthenticated=self.sasl is not None, waited_s=waited_s)
        # The pool tells those that are there when memory becomes scarce; this one came later.
        self.read_less()

    def _admit(self, now: float) -> bool:
        """Whether the quotas let it in; else it is closed."""
        quotas = self._listener.limits.connection_quotas
        given = self._transport.get_extra_info("socket")  # None in a simulation
        problem = quotas.admit(
            self.host,
            self.listener,
            is_internal=self.is_internal,
            now=now,
            descriptor=-1 if given is None else given.fileno(),
        )
        if problem is not None:
            self._log_rejection(problem)
            # Not close(): that waits for the peer to read, and the descriptor stays in use, which
            # is what the quota is about.
            self._transport.abort()
        return problem is None

    def _hold_above_rates(self, now: float) -> float:
        """Hold it unread rather than refuse it; for how many seconds.

        A client that is refused connects again at once, which makes the burst larger (KIP-612
        delays for this reason).
        """
        quotas = self._listener.limits.connection_quotas
        wait_s = quotas.throttle_s(self.listener, is_internal=self.is_internal, now=now)
        close_s = quotas.closes_after_s(self.host, is_internal=self.is_internal, now=now)
        if close_s:
            # Above the rate of its address it is not served at all.
            self.throttle(close_s, "address", self._refuse_for_rate)
        elif wait_s:
            self.throttle(wait_s, "connection rate")
        return close_s or wait_s

    def _has_principal(self) -> bool:
        """Find out who the certificate is of; a peer that is nobody here is closed."""
        try:
            self._principal = self._listener.certified_principal(
                self._transport.get_extra_info("ssl_object")
            )
        except NoPrincipal as problem:
            self._listener.limits.audit.login_failed(
                listener=self.listener,
                mechanism=CERTIFICATE,
                host=self.host,
                reason=f"{problem.reason}: {problem.detail}",
            )
            self._listener.limits.rejection_log.connection_rejected(
                self.host, problem.reason, problem.detail
            )
            self._transport.abort()
            return False
        if self._principal != ANONYMOUS:
            self._listener.limits.audit.logged_in(
                listener=self.listener,
                mechanism=CERTIFICATE,
                host=self.host,
                principal=self._principal,
            )
        return True

    def data_received(self, data: bytes) -> None:
        """Serve every whole frame that is there now."""
        self._is_heard = True
        framing, scheduler = self._framing, self._listener.scheduler
        scheduler.requests_left -= 1
        if (
            scheduler.requests_left < 0
            or not framing.is_alone(data)
            or self._waiting
            or self._is_blocked
            or self._out
        ):
            framing.feed(data)
            self._serve()
            if len(data) >= BULK_BYTES_MIN:
                self._receive_in_bulk()
            return
        # The shortcut must not overtake anything: whatever waits, or is written but not sent yet,
        # was excluded above, and so was a connection that used up its share of this turn.
        # How most clients ask: one frame, then silence until its answer is there.
        try:
            reply = self._dispatch(data, self)
        except CorruptRequest as problem:
            self._refuse(problem)
            return
        if type(reply) is bytes:
            if len(reply) > LONG_BYTES:
                scheduler.requests_left = 0
            if scheduler.may_write_at_once(self):
                self._transport.write(reply)
            else:
                # Other connections are served in this turn, too. Their answers leave together at
                # its end: a write wakes a client, which then competes with this process for the
                # CPU.
                self._out.append(reply)
                self._out_bytes = len(reply)
                self._on_answer(_NOBODY)
        elif type(reply) is PendingResponse:
            self._await_response(reply)
        elif reply is not None:
            self._send(reply)
            self._settle()

    def pause_writing(self) -> None:
        """The peer reads slowly: make no more answers for it, and count those that lie here.

        The transport may call this from within a write, so in the middle of :meth:`flush`,
        which therefore looks at ``_is_stalled`` before each answer.
        """
        self._is_stalled = self._is_blocked = self._sender.is_paused = True
        # Counted, or peers that ask and never read would each hold a megabyte outside any bound;
        # fetches are made smaller by what lies here.
        self._answer_bytes = self._transport.get_write_buffer_size()
        self._listener.limits.answers.take(self._answer_bytes)

    def resume_writing(self) -> None:
        """The peer has taken what lay here."""
        self._forget_answers()
        self._sender.is_paused = False
        if self._sender.is_busy:
            # The sender had lowered the limit to 0 to learn when the transport is empty. It writes
            # past the transport, so bytes that were still there would have arrived after the slice.
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
            if not self._sender.resume():
                return
        self._on_sent("")

    def _on_sent(self, problem: str) -> None:
        if problem:
            self.time_out(problem)
        else:
            self._is_stalled = False
            self.flush()

    def eof_received(self) -> bool:
        """Who has nothing more to say may still wait for the rest of an answer.

        True keeps the transport open: a slice of a file leaves past it, unknown to it.
        """
        if self._sender.is_busy:
            self.close()
        return self._sender.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever still works for this peer, and give everything back."""
        # A connection that was turned away was never counted: giving back what it did not take
        # would let one more in than the quotas allow, each time.
        self._break_cycles()
        if not self._is_admitted:
            return
        self._is_closing = True
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        limits = self._listener.limits
        limits.strangers.leave(self)
        limits.connection_quotas.release(self.host, self.listener, is_internal=self.is_internal)
        self._forget_answers()
        self._drop_waiting()
        self._drop_out()
        self._framing.clear()
        self._requests.leave(self)
        self._requests.give(self._charged)
        self._charged = 0
        self._listener.left(self)

    def _break_cycles(self) -> None:
        """Be freed without the collector, which looks at old objects seldom (gc_tuning.py)."""
        self._timeouts.stop()
        self._sender.close()
        self._response_ready = _forget
        if self.sasl is not None:
            self.sasl.tell_nobody()

    # --- frames in -----------------------------------------------------------------------------

    def _serve(self) -> None:
        take, waiting, scheduler = self._framing.next, self._waiting, self._listener.scheduler
        scheduler.shares_left = SHARES_PER_VISIT
        try:
            while not self._is_blocked:
                # A client that keeps its pipe full must not keep the loop: beacons, control
                # requests and ZooKeeper's answers would be late, and the node suspected
                # (docs/decisions/0010).
                if scheduler.requests_left <= 0 and not scheduler.take_share():
                    self._is_blocked = True
                    self._on_answer(_NOBODY)  # goes on when others had their turn
                    break
                if waiting and not self._may_start():
                    self._is_blocked = True
                    break
                frame = take()
                if frame is None:
                    break
                scheduler.requests_left -= 1
                reply = self._dispatch(frame, self)
                if type(reply) is PendingResponse:
                    self._await_response(reply)
                elif reply is None:
                    continue
                elif waiting:
                    # There already, but behind answers that are not: it must not leave before them.
                    waiting.append(reply)
                    self._ready_bytes += _size(reply)
                    self._is_blocked = self._must_wait()
                else:
                    self._send(reply)
        except CorruptRequest as problem:
            self._refuse(problem)
        else:
            self._settle()

    def _may_start(self) -> bool:
        """Whether the next request may start, as net/request_order.py has it.

        True as well while its key is not here: then there is no whole frame to start. What is
        resolved but not written yet forbids nothing, as it has had its effect.

        The set of APIs that may start is narrowed when a request joins ``_waiting`` and not widened
        when one is answered. It is made anew only when it forbids something: that is rare, and
        keeping it exact would cost a look at all that wait for every answer.
        """
        framing = self._framing
        key = framing.next_key()
        if key not in self._allowed_behind and key >= 0:
            under_way = [
                one for one in self._waiting if type(one) is PendingResponse and not one.is_resolved
            ]
            self._allowed_behind = request_order.intersection(
                one.allowed_behind for one in under_way
            )
            if key not in self._allowed_behind:
                return False
        # Joins and syncs pass each other only where members differ. A second join of one member has
        # to see the outcome of its first, or it would be answered with a generation that is over.
        # The frame is decoded to find out who asks; request_order.members says why both ids count.
        if key not in request_order.MEMBERSHIP:
            return True
        frame = framing.next()
        if frame is None:
            return True
        framing.put_back(frame)
        asks = self._listener.dispatcher.members(frame, self)
        return not any(
            type(one) is PendingResponse
            and not one.is_resolved
            and not asks.isdisjoint(one.members)
            for one in self._waiting
        )

    def _refuse(self, problem: CorruptRequest) -> None:
        """Close, since nothing behind a frame like this one can be understood.

        What was answered before it is still written: the client may have committed by it.
        """
        self._listener.limits.rejection_log.request_rejected(
            self.host, problem, self._listener.loop.time()
        )
        self.close()
        self._settle()

    def _await_response(self, pending: PendingResponse) -> None:
        """Keep the place of an answer that is to come."""
        pending.add_done_callback(self._response_ready)
        if not self._waiting:
            self._allowed_behind = pending.allowed_behind
        elif self._allowed_behind is not pending.allowed_behind:
            self._allowed_behind = request_order.intersection(
                (self._allowed_behind, pending.allowed_behind)
            )
        self._waiting.append(pending)
        requests = self._requests
        # As MemoryPool.take but for its look at scarcity, one call less for every commit: reads
        # look at it, and this connection is about to stop at the bound by the last lines.
        requests.used += pending.held
        if pending.held > LONG_BYTES:
            self._listener.scheduler.requests_left = 0
        if len(self._waiting) >= PENDING_RESPONSES_MAX or requests.used > requests.bytes_max:
            self._is_blocked = True

    def _must_wait(self) -> bool:
        """Whether no further frame may be served for now.

        Never for want of memory where nothing waits here: a whole frame is served then, however
        much others hold, since serving it is what frees its memory
        (test_a_spent_budget_leaves_one_request_in_flight_on_each_connection).
        """
        waiting = self._waiting
        if self._is_closing or self._is_stalled or self._is_held:
            return True
        if not waiting:
            return False
        return (
            len(waiting) >= PENDING_RESPONSES_MAX
            or self._ready_bytes >= WRITE_BUFFER_MAX
            or self._requests.is_spent
        )

    def _authenticated(self, sasl: SaslServer, framing: Framing) -> None:
        """The peer may do everything from here on: long frames, and no check before each.

        But where its session ends every request is checked for that.
        """
        limits = self._listener.limits
        limits.audit.logged_in(
            listener=self.listener,
            mechanism=sasl.mechanism,
            host=self.host,
            principal=sasl.principal,
        )
        framing.allow(limits.frame_bytes_max)
        if sasl.session_expires_ms is None:
            self._dispatch = self._listener.dispatcher.dispatch
        limits.strangers.leave(self)
        held = self._charged + sum(
            one.held for one in self._waiting if type(one) is PendingResponse
        )
        was_stranger = self._requests is not limits.requests
        self._requests.leave(self)
        self._requests.give(held)
        self._is_queued = False
        self._requests = limits.requests
        self._requests.take(held)
        # Not when it logs in once more: then it may be receiving in bulk.
        if was_stranger and self._transport.get_extra_info("socket") is not None:
            self.read_by(self)
            self.read_less()

    def _authentication_failed(self, sasl: SaslServer, reason: str) -> None:
        self._listener.limits.audit.login_failed(
            listener=self.listener, mechanism=sasl.mechanism, host=self.host, reason=reason
        )
        problem = CorruptRequest(reason)
        problem.api = "authentication"
        self._listener.limits.rejection_log.request_rejected(
            self.host, problem, self._listener.loop.time()
        )

    def serve_received(self) -> None:
        """Serve what the framing has whole now."""
        self._is_heard = True
        self._serve()

    def receive_by(self, protocol: asyncio.BaseProtocol, framing: Framing | BulkFraming) -> None:
        """Receive in another way from now on; what has come so far is in ``framing``."""
        self._framing = framing
        self.read_by(protocol)
        self._serve()

    def read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Have what comes handed to ``protocol``, which stands for this connection."""
        # Paused around the switch: bytes that are read in between would go to the former protocol,
        # whose framing is not looked at any more, and the stream would lose its frame boundaries.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        if not self._is_paused:
            self._transport.resume_reading()

    def read_less(self) -> None:
        """Read little at once if memory is scarce, unless there is a buffer already (counted).

        Of a stranger in any case.
        """
        framing, limits = self._framing, self._listener.limits
        is_stranger = self.sasl is not None and not self.sasl.is_proved
        if not (limits.requests.is_scarce or is_stranger) or self._is_closing:
            return
        if self._transport.get_extra_info("socket") is None:
            return
        if is_stranger:
            self.read_by(StrangerReceiver(self, limits))
            return
        if isinstance(framing, BulkFraming):
            if framing.held:
                return
            self._framing = framing.plain()
        self.read_by(SmallReceiver(self, limits))

    def _receive_in_bulk(self) -> None:
        # Buffers of more than a megabyte are lent to peers that are known, and not while whole
        # frames wait in the old framing, which would all have to be copied over.
        is_stranger = self.sasl is not None and self.sasl.stage is not Stage.DONE
        if not (is_stranger or self._is_closing or self._framing.data):
            receive_in_bulk(self, self._transport, self._framing, self._listener.limits)

    # --- answers out ---------------------------------------------------------------------------

    def _on_answer(self, _: PendingResponse) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self._listener.scheduler.add(self)

    def flush(self) -> None:
        """Write the answers that are there, in order, and serve what waited behind them."""
        waiting, released = self._waiting, 0
        try:
            while waiting and not self._is_stalled:
                head = waiting[0]
                if type(head) is not PendingResponse:
                    waiting.popleft()
                    self._ready_bytes -= _size(head)
                    self._send(head)
                    continue
                # It holds up what is ready behind it: answers keep the order of their requests.
                if not head.is_resolved:
                    break
                waiting.popleft()
                released += head.held
                reply = response_frame(head.route, head.correlation_id, head.answer)
                if reply is not None:
                    self._send(reply)
        except CorruptRequest as problem:
            self._listener.limits.rejection_log.request_rejected(
                self.host, problem, self._listener.loop.time()
            )
            # Nothing behind it is answered or served any more: where one answer is left out, each
            # further one would stand in the place of another.
            self._is_closing = True
        # In one go and after the loop: giving memory back resumes other connections, which must not
        # run between two answers of this one.
        if released:
            requests = self._requests
            requests.used -= released
            # As MemoryPool.give, three calls less for every commit: nobody waits for memory that is
            # not scarce.
            if requests.is_scarce:
                requests.give(0)
        if self._is_blocked:
            self._is_blocked = self._must_wait()
        if self._framing.data and not self._is_blocked:
            self._serve()
        else:
            self._settle()

    def close(self) -> None:
        """End the connection once what is already answered has been written."""
        if not self._is_closing:
            self._is_closing = self._is_blocked = True
            # By way of the scheduler: answers that this turn still resolves leave before the end.
            self._on_answer(_NOBODY)

    def abort(self) -> None:
        """End the connection at once."""
        self._drop_out()
        self._transport.abort()

    def _drop_out(self) -> None:
        """A flush that comes later must not write to a transport that is closed."""
        self._out = []
        self._out_bytes = 0
        self._has_slices = False

    def _send(self, reply: ResponseFrame) -> None:
        if isinstance(reply, bytes):
            self._out.append(reply)
            self._out_bytes += len(reply)
        else:
            self._out.extend(reply)
            self._out_bytes += _size(reply)
            self._has_slices = self._has_slices or any(type(one) is FileSlice for one in reply)
        if self._out_bytes > LONG_BYTES:
            self._listener.scheduler.requests_left = 0  # it took long, perhaps
            # Not gathered any further: one turn could make answers of any size together.
            if self._out_bytes >= WRITE_BUFFER_MAX:
                self._write()

    def _write(self) -> None:
        out = self._out
        if self._has_slices:
            # Slices go past the transport, by sendfile. Until they have left nothing else may be
            # written here, or its bytes would land in the middle of theirs.
            self._has_slices = False
            if not self._sender.send(out):
                self._is_stalled = self._is_blocked = True
        elif len(out) == 1:
            self._transport.write(cast("Any", out[0]))
        # Copying little into one piece is cheaper than a system call for several; much is not.
        elif self._out_bytes < SMALL_FRAME_BYTES_MAX:
            self._transport.write(b"".join(cast("list[Buffer]", out)))
        else:
            write_pieces(self._transport, cast("list[Buffer]", out))
        self._out = []
        self._out_bytes = 0

    # --- memory and time -----------------------------------------------------------------------

    def _settle(self) -> None:
        """After a turn: write, count what is held, and read on only if more can be held."""
        if self._out:
            self._write()
        framing = self._framing
        if framing.data or framing.partial or self._charged or self._is_paused or self._is_closing:
            self._account(framing.held)
            if framing.missing >= BULK_BYTES_MIN and framing.held >= SMALL_FRAME_BYTES_MAX:
                self._receive_in_bulk()

    def _account(self, held: int) -> None:
        """Tell the node's memory pool what is held here, and stop reading where it is spent.

        Not reading is the only bound that a peer cannot ignore: its bytes stay in its own buffers.
        """
        if self._is_closing:
            # Closing the transport now would cut off the slices that are on their way past it.
            if self._sender.is_busy:
                self._transport.pause_reading()
            else:
                self._transport.close()
            return
        requests = self._requests
        change, self._charged = held - self._charged, held
        # Its frame is whole. While it stays in the queue whoever is behind it cannot go on.
        if self._is_queued and held <= TINY_BYTES:
            self._is_queued = False
            requests.leave(self)
        if change > 0:
            requests.take(change)
        elif change < 0:
            requests.give(-change)
        # Blocked with nothing here it reads on: only by reading is it noticed that a peer has left,
        # and then whoever works for it is told (test_whoever_waits_for_a_peer_that_left_is_told).
        must_pause = self._is_blocked and held > 0
        # Who holds little never queues: thousands of clients with half a header each would
        # otherwise stand before the few large frames that could be finished and give memory back.
        if not must_pause and held > TINY_BYTES and requests.is_scarce:
            self._is_queued = True
            must_pause = requests.must_wait(self, held + self._framing.missing)
        if must_pause != self._is_paused:
            self._is_paused = must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def throttle(
        self, seconds: float, kind: str = "quota", then: Callable[[], None] | None = None
    ) -> None:
        """Serve nothing more of this peer for so long; whatever it is to be told leaves.

        A shorter one than it is throttled for already changes nothing. ``kind`` is what metrics
        call it. ``then`` None: it is served afterwards. It is no idle peer meanwhile, however long
        that takes (:meth:`state`).
        """
        loop, timer = self._listener.loop, self._throttle_timer
        if timer is not None:
            if timer.when() >= loop.time() + seconds:
                return
            timer.cancel()
        self._is_held = self._is_blocked = True
        self.throttle_kind = kind
        self._throttle_timer = loop.call_later(seconds, then or self._throttled)

    def _throttled(self) -> None:
        self._throttle_timer, self.throttle_kind = None, ""
        self.serve()

    def _refuse_for_rate(self) -> None:
        self.time_out("too many connections a second from one address")

    def serve(self) -> None:
        """The listener serves from now on, or the throttle is over: whichever comes last."""
        self._is_held = self._throttle_timer is not None or not self._listener.is_serving
        self.flush()

    def resume(self) -> None:
        """The budget has room again."""
        self._is_blocked = self._must_wait()
        self._settle()

    def state(self) -> ConnectionActivity:
        """What its patience with the peer depends on; asking counts as the end of a period.

        A peer that waits for its answer is not idle, however long that takes, nor is one that is
        throttled, as long as it is there. Nor is an unfinished frame held against it while we are
        the ones who do not read.
        """
        is_heard, self._is_heard = self._is_heard, False
        is_throttled = self._throttle_timer is not None and not self.has_left()
        return ConnectionActivity(
            is_authenticated=self.sasl is None or self.sasl.is_proved,
            is_active=is_heard or bool(self._waiting) or is_throttled,
            is_stalled=self._is_stalled,
            is_partial=self._framing.held > 0 and not self._is_paused,
            growth=self._framing.growth,
            sent=self._sender.sent,
        )

    @property
    def idle_s(self) -> float:
        """How long the peer has been idle, roughly; 0 while it waits for an answer."""
        return 0.0 if self._waiting else self._timeouts.quiet_s

    def longest_waiting(self) -> PendingResponse | None:
        """The first request here that is not answered yet."""
        for one in self._waiting:
            if type(one) is PendingResponse and not one.is_resolved:
                return one
        return None

    def time_out(self, reason: str) -> None:
        """The peer has been silent, slow or a stranger for too long.

        Not by :meth:`close`, which first writes what is answered: it would wait for such a peer.
        """
        self._log_rejection(reason)
        self._is_closing = True
        self._transport.abort()

    def _forget_answers(self) -> None:
        self._listener.limits.answers.give(self._answer_bytes)
        self._answer_bytes = 0

    def _drop_waiting(self) -> None:
        """Forget what was asked; its memory is free when the handler has let go of it, not before.

        Peers that send long requests and leave would fill the node with what is still worked on.
        """
        for reply in self._waiting:
            if isinstance(reply, PendingResponse):
                over = None
                if reply.on_drop is not None and not reply.is_resolved:
                    over = reply.on_drop()
                if over is None:
                    self._requests.give(reply.held)
                else:
                    over.add_done_callback(partial(_give, self._requests, reply.held))
        self._waiting.clear()

    def _log_rejection(self, reason: str) -> None:
        self._listener.limits.rejection_log.connection_rejected(self.host, reason)


_NOBODY = PendingResponse()
"""No answer came, and the connection is to be flushed all the same, in its turn."""


def _forget(_: PendingResponse) -> None:
    """An answer is there, and nobody to take it."""


def _give(requests: MemoryPool, held: int, _: asyncio.Future[None]) -> None:
    requests.give(held)


def _size(reply: ResponseFrame) -> int:
    return len(reply) if isinstance(reply, bytes) else sum(map(len, reply))
