"""One bound port and the connections that came in by it.

Source: docs/spec/cluster.md §2.14 (two listeners) and §7 (bind early, serve late).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Collection

import uvloop

from barnabas.broker.runtime.latency import Latency
from barnabas.broker.security.sasl import SaslServer, SaslTerms
from barnabas.broker.security.ssl_contexts import ListenerTls, NoPrincipal

from .connection import Connection
from .connection_scheduler import ConnectionScheduler
from .dispatch import Dispatcher
from .limits import Limits
from .tls_acceptor import TlsAcceptor

log = logging.getLogger(__name__)


class Listener:
    """A port with its rights; ``sasl`` is the proof it asks for, if any.

    Bound before the node registers, so that its port is known; what connects is held, unread,
    until :meth:`serve`.
    """

    def __init__(
        self,
        name: str,
        dispatcher: Dispatcher,
        limits: Limits,
        *,
        is_internal: bool = False,
        sasl: SaslTerms | None = None,
        tls: ListenerTls | None = None,
        node_principals: Collection[str] | None = None,
    ) -> None:
        """``node_principals``: nobody else is let in, where certificates are the only proof."""
        self.name = name
        self.is_internal = is_internal
        self.is_serving = False
        self.dispatcher = dispatcher
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.scheduler = ConnectionScheduler(self.loop)
        self.port = 0
        self.connections: dict[Connection, None] = {}
        """In the order in which they came: one seed of a simulation gives one history."""
        self._sasl = sasl
        self.tls = tls
        self.tls_handshakes: Counter[str] = Counter()
        """By what became of them."""
        self.tls_handshake_time = Latency()
        """Of those that were done, from the first byte that was read to the last."""
        self._node_principals = node_principals
        self._server: asyncio.AbstractServer | None = None
        self._acceptor = None if tls is None else TlsAcceptor(self, tls)
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        limits.requests.on_scarce.append(self._memory_is_scarce)

    async def bind(self, host: str, port: int) -> int:
        """Listen; the port that was bound (0 asks for any). Raises OSError when it is taken."""
        if self._acceptor is not None:
            if not isinstance(self.loop, uvloop.Loop):
                log.warning(
                    "listener=%s speaks TLS on %s: an idle connection costs 280 KiB there, 30 on "
                    "uvloop",
                    self.name,
                    type(self.loop).__name__,
                )
            self.port = await self._acceptor.bind(host or None, port)
            return self.port
        server = await self.loop.create_server(
            lambda: Connection(self), host or None, port, backlog=1024
        )
        self._server = server
        self.port = server.sockets[0].getsockname()[1]
        return self.port

    def serve(self) -> None:
        """Read requests from now on, those of the connections held so far first."""
        self.is_serving = True
        for connection in list(self.connections):
            connection.serve()

    async def close(self) -> None:
        """Stop listening, write what is answered, and wait until every connection is gone."""
        self.is_serving = False
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            await self._acceptor.close()
        for connection in list(self.connections):
            connection.close()
        try:
            await asyncio.wait_for(self._all_gone.wait(), CLOSE_S)
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
            await self._all_gone.wait()
        if self._memory_is_scarce in self.limits.requests.on_scarce:
            self.limits.requests.on_scarce.remove(self._memory_is_scarce)

    def exchange(self) -> SaslServer | None:
        """A fresh proof to ask of a peer; None where none is asked."""
        return None if self._sasl is None else SaslServer(self._sasl, self.loop.time)

    @property
    def admits_nodes_only(self) -> bool:
        """Whether certificates let nodes in, and nobody else."""
        return self._node_principals is not None

    def certified_principal(self, link: ssl.SSLObject) -> str:
        """Who the peer of a TLS connection is by its certificate; raises NoPrincipal."""
        assert self.tls is not None, "only TLS has certificates"
        principal = self.tls.principal(link)
        if self._node_principals is not None and principal not in self._node_principals:
            raise NoPrincipal("is none of cluster.node.principals", principal)
        return principal

    def _memory_is_scarce(self) -> None:
        self._read_less(list(self.connections))

    def _read_less(self, connections: list[Connection]) -> None:
        """Before any of the first can read again, and of more in each turn that follows."""
        for connection in connections[:TURN_CONNECTIONS]:
            connection.read_less()
        if len(connections) > TURN_CONNECTIONS:
            self.loop.call_soon(self._read_less, connections[TURN_CONNECTIONS:])

    def entered(self, connection: Connection) -> None:
        """Know a connection that was admitted."""
        self.connections[connection] = None
        self._all_gone.clear()

    def left(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_gone.set()


TURN_CONNECTIONS = 1000
"""How many connections change the way they read in one turn of the loop: 10 ms of it."""
CLOSE_S = 1.0
"""How long a peer may take to read its last answers."""
