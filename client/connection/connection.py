"""One connection to a broker: version negotiation, SASL authentication, pipelined requests.

Source: docs/spec/protocol.md §1.3 (negotiation); logins are in sasl_login.py.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from barnabas.client.errors import (
    AuthenticationFailed,
    Disconnected,
    RequestTimedOut,
    TlsFailed,
    UnsupportedVersion,
    raise_for,
)
from barnabas.client.tls.contexts import describe_failure
from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decoder, encoder
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.frame import parse_response_header, request_frame
from barnabas.protocol.messages import api_versions, sasl_authenticate, sasl_handshake

from .answer_memory import AnswerMemory
from .in_flight_requests import InFlightRequests
from .sasl_login import SaslLogin
from .throttle import Throttle

VersionRange = tuple[int, int]
"""The lowest and the highest version of an API, both inclusive."""

_RESPONSE_BYTES_MAX: Final = 256 << 20
_CORRELATION_IDS: Final = 1 << 31
_NO_RESPONSE_ACKS: Final = 0
_CUT_SHORT: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""Of a connection that was accepted: in a handshake the reason may be all that is missing."""
_SESSION_SHARE: Final = 0.85
"""Of the time that a login holds; Kafka's Java client repeats it no sooner, either."""


class Connection:
    """One TCP connection; requests are written at once and answers matched in their order.

    Made by :meth:`open`. A request that gets no answer in time ends the connection, since
    whatever stands behind it is late as well: open another. Cancelling a request is harmless,
    its answer is thrown away. Use from one loop only.
    """

    def __init__(
        self, in_flight: InFlightRequests, peer: str, client_id: str, timeout_ms: int
    ) -> None:
        self.peer = peer
        """Host and port as they were dialled, for messages."""
        self.versions: Mapping[int, VersionRange] = {}
        """What the broker serves, by API key."""
        self._in_flight = in_flight
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._replace_at = float("inf")
        self._throttle = Throttle(asyncio.get_running_loop().time)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "barnabas",
        timeout_ms: int = 30_000,
        sasl: SaslLogin | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Connection:
        """Connect, ask what the broker serves, and log in with ``sasl``.

        ``tls`` encrypts all of it; the broker's certificate has to be of ``host`` as it is given.

        ``timeout_ms`` bounds the whole of it, and later every request that names no bound of its
        own. A broker that does not offer the mechanism closes the connection; with another one of
        the login's it is dialled once more. Raises Disconnected, UnsupportedVersion or
        AuthenticationFailed.
        """
        mechanism = ""
        if sasl is not None:
            now = asyncio.get_running_loop().time
            peer = f"{host}:{port}"
            mechanism = sasl.choice(peer, now())
            try:
                return await cls._open(host, port, client_id, timeout_ms, sasl, mechanism, tls)
            except MechanismNotOffered as error:
                mechanism = sasl.other_choice(peer, mechanism, error.offered, now())
                if not mechanism:
                    raise
        return await cls._open(host, port, client_id, timeout_ms, sasl, mechanism, tls)

    @classmethod
    async def _open(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_ms: int,
        sasl: SaslLogin | None,
        mechanism: str,
        tls: ssl.SSLContext | None,
    ) -> Connection:
        peer = f"{host}:{port}"
        in_flight = InFlightRequests(
            asyncio.get_running_loop(), peer, response_bytes_max=_RESPONSE_BYTES_MAX
        )
        connection = cls(in_flight, peer, client_id, timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await _dial(in_flight, host, port, tls)
                await connection._agree_on_versions()
                if sasl is not None:
                    await connection._authenticate(sasl, mechanism)
        except (OSError, OverflowError, ValueError) as error:  # the last two: no such address
            await in_flight.close()
            raise _dialling_failure(error, peer, timeout_ms, has_tls=tls is not None) from error
        except BaseException:
            await in_flight.close()
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        """It ended, from whichever side: every request will raise Disconnected."""
        return self._in_flight.is_closed

    @property
    def is_due(self) -> bool:
        """Its login ends soon, and nothing is under way: open another before the broker closes it.

        The broker tells how long a login holds (KIP-368). To log in anew on a new connection is
        as good as to repeat the login on this one, where no request could pass it.
        """
        return self._in_flight.is_idle and asyncio.get_running_loop().time() >= self._replace_at

    def version_of(self, message_class: type, most: int | None = None) -> int:
        """The highest version of a request that both sides speak, not above ``most``.

        Raises UnsupportedVersion, for this request only: the connection serves others.
        """
        spec = api.spec_of(message_class)
        lowest, highest = spec.versions
        if most is not None:
            highest = min(highest, most)
        offered = self.versions.get(spec.key)
        if offered is None:
            raise UnsupportedVersion(f"{self.peer} does not serve {spec.name}")
        version = min(highest, offered[1])
        if version < max(lowest, offered[0]):
            raise UnsupportedVersion(
                f"{self.peer} serves {spec.name} in versions {offered[0]} to {offered[1]}, "
                f"not in {lowest} to {highest}"
            )
        return version

    async def request(
        self,
        message: Any,
        version: int | None = None,
        timeout_ms: int | None = None,
        *,
        memory: AnswerMemory | None = None,
    ) -> Any:
        """Send ``message`` and return the answer to it; None for a produce with acks 0.

        ``version`` None takes the highest that both sides speak. Codes inside the answer are the
        caller's to read. A broker that asked to be left alone is left alone first (KIP-219), which
        is no part of ``timeout_ms`` unless it is longer. With ``memory`` a long answer is read in
        turns, and only where it differs from the last one. Raises Disconnected, RequestTimedOut or
        UnsupportedVersion.
        """
        message_class = type(message)
        chosen = self.version_of(message_class) if version is None else version
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if self._throttle.holds:
            await self._await_throttle(limit_ms)
        if self._in_flight.is_paused:
            await self._drained(limit_ms)
        if _expects_no_response(message):
            spec = api.spec_of(message_class)
            self._in_flight.send_without_response(
                self._frame(spec.key, chosen, encoder(message_class, chosen)(message))
            )
            return None
        frame = await self.ask(message, chosen, limit_ms)
        if memory is not None:
            return await self._remembered(api.spec_of(message_class), chosen, frame, memory)
        return self.read(message_class, chosen, frame)

    def ask(self, message: Any, version: int, timeout_ms: int) -> asyncio.Future[bytes]:
        """Send ``message`` at once; what comes of it is for :meth:`read`.

        For who asks often and awaits every answer before asking again: neither side of the
        connection is waited for. Raises Disconnected, here or in the future, or RequestTimedOut.
        """
        message_class = type(message)
        body = encoder(message_class, version)(message)
        frame = self._frame(api.spec_of(message_class).key, version, body)
        return self._in_flight.send(self._correlation_id, frame, timeout_ms / 1000)

    def read(self, message_class: type, version: int, frame: bytes) -> Any:
        """The answer to a request of this class; raises Disconnected when it is corrupt."""
        return self._decoded(api.spec_of(message_class), version, frame)

    async def close(self) -> None:
        """End the connection; requests under way raise Disconnected. Closing twice is allowed."""
        await self._in_flight.close()

    async def __aenter__(self) -> Self:
        """The open connection."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _await_throttle(self, limit_ms: int) -> None:
        """Raises RequestTimedOut, with the connection open, for more than ``limit_ms``."""
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._throttle.passed()
        except TimeoutError:
            raise RequestTimedOut(f"{self.peer} throttles for more than {limit_ms} ms") from None

    async def _drained(self, limit_ms: int) -> None:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._in_flight.drained()
        except TimeoutError as error:
            failure = RequestTimedOut(f"{self.peer} took nothing for {limit_ms} ms")
            self._in_flight.fail(failure)
            raise failure from error

    def _frame(self, key: int, version: int, body: bytes) -> bytes:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        return request_frame(key, version, self._correlation_id, self._client_id, body)

    def _decoded(self, spec: api.ApiSpec, version: int, frame: bytes) -> Any:
        try:
            start = _body_start(spec, version, frame)
            answer = decoder(spec.response, version)(frame, start)
        except CorruptRequest as error:
            raise self._corrupt(spec, error) from error
        return self._heeded(spec, version, answer)

    async def _remembered(
        self, spec: api.ApiSpec, version: int, frame: bytes, memory: AnswerMemory
    ) -> Any:
        try:
            start = _body_start(spec, version, frame)
            answer = await memory.read(spec.response, version, frame, start)
        except CorruptRequest as error:
            raise self._corrupt(spec, error) from error
        return self._heeded(spec, version, answer)

    def _corrupt(self, spec: api.ApiSpec, error: CorruptRequest) -> Disconnected:
        failure = Disconnected(f"{self.peer} sent a corrupt {spec.name} answer: {error}")
        self._in_flight.fail(failure)
        return failure

    def _heeded(self, spec: api.ApiSpec, version: int, answer: Any) -> Any:
        throttle_time_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_time_ms > 0:
            self._throttle.tell(spec.key, version, throttle_time_ms)
        return answer

    async def _agree_on_versions(self) -> None:
        """Ask with our highest version; a broker that knows it not tells its own in version 0."""
        request = api_versions.ApiVersionsRequest(
            client_software_name="barnabas", client_software_version="0"
        )
        spec = api.spec_of(type(request))
        version = spec.versions[1]
        frame = await self._raw(request, version)
        if _error_code(frame) == ErrorCode.UNSUPPORTED_VERSION:
            offered = _version_ranges(self._decoded(spec, 0, frame))
            version = min(version, offered.get(spec.key, (0, 0))[1])
            frame = await self._raw(request, version)
        answer = self._decoded(spec, version, frame)
        raise_for(answer.error_code)
        self.versions = _version_ranges(answer)

    async def _raw(self, request: api_versions.ApiVersionsRequest, version: int) -> bytes:
        body = encoder(type(request), version)(request)
        frame = self._frame(api.spec_of(type(request)).key, version, body)
        return await self._in_flight.send(self._correlation_id, frame, self._timeout_ms / 1000)

    async def _authenticate(self, login: SaslLogin, mechanism: str) -> None:
        handshake = await self.request(sasl_handshake.SaslHandshakeRequest(mechanism=mechanism))
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise MechanismNotOffered(self.peer, handshake.mechanisms)
        if handshake.error_code:
            raise AuthenticationFailed(handshake.error_code, f"{self.peer} asks for no login")
        await login.prove(self.peer, mechanism, self._send_token)

    async def _send_token(self, token: bytes) -> bytes:
        answer = await self.request(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            raise AuthenticationFailed(answer.error_code, answer.error_message or self.peer)
        if answer.session_lifetime_ms > 0:
            usable_s = answer.session_lifetime_ms / 1000 * _SESSION_SHARE
            self._replace_at = asyncio.get_running_loop().time() + usable_s
        return bytes(answer.auth_bytes)


class MechanismNotOffered(AuthenticationFailed):
    """The broker takes other mechanisms."""

    def __init__(self, peer: str, offered: Sequence[str]) -> None:
        names = ", ".join(offered) or "none"
        super().__init__(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{peer} offers: {names}")
        self.offered = tuple(offered)


async def _dial(
    in_flight: InFlightRequests, host: str, port: int, tls: ssl.SSLContext | None
) -> None:
    """Connect; where that is cut short by a time-out or a cancellation, nothing is left of it."""
    try:
        await asyncio.get_running_loop().create_connection(lambda: in_flight, host, port, ssl=tls)
    except BaseException:
        in_flight.abandon()
        raise


def _dialling_failure(
    error: Exception, peer: str, timeout_ms: int, *, has_tls: bool
) -> Disconnected:
    if isinstance(error, ssl.SSLError):
        return TlsFailed(f"no TLS with {peer}: {describe_failure(error)}")
    if has_tls and isinstance(error, _CUT_SHORT):
        return TlsFailed(f"no TLS with {peer}: it closed the connection")
    return Disconnected(f"no connection to {peer}: {_reason(error, timeout_ms)}")


def _reason(error: Exception, timeout_ms: int) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {timeout_ms} ms"
    number = error.errno if isinstance(error, OSError) else None
    if number and number < 0 and isinstance(error, OSError):  # of the resolver of names
        return error.strerror or str(error)
    return os.strerror(number) if number else str(error) or type(error).__name__


def _body_start(spec: api.ApiSpec, version: int, frame: bytes) -> int:
    header_version = api.response_header_version(spec.key, version)
    return parse_response_header(frame, header_version)[1]


def _error_code(frame: bytes) -> int:
    """The code of an ApiVersions answer: it stands at one place in every version."""
    return int.from_bytes(frame[4:6], signed=True)


def _version_ranges(answer: Any) -> dict[int, VersionRange]:
    return {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}


def _expects_no_response(message: Any) -> bool:
    return getattr(message, "acks", None) == _NO_RESPONSE_ACKS
