"""Which of several servers kazoo asks first for a session, and how long each is waited for.

A server that stands still (SIGSTOP, a machine that lost its power) accepts connections and answers
nothing. kazoo shuffles the servers and waits for each a share of the session timeout, so it may ask
the one that was just lost again before all others: the session is over then. Where it is the leader
that stands still, the others close connections until they have elected another one, so that it is
asked whatever the order.

Source: docs/beacons.md, "How long ZooKeeper may be away"; docs/zookeeper.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

from kazoo.protocol.serialization import Connect

log = logging.getLogger(__name__)

Server = tuple[str, int]
"""Address and port, as kazoo resolved them."""

PATIENCE_S: Final = 2.0
"""For a server that has not yet been too slow; twice as long after each time that it was.

A server with a slow disk, or far away, has to be waited for longer, and all may be slow: so it
grows, up to what kazoo would wait, and for each server apart, whatever others answer."""


class KazooServers:
    """Stands before the methods of one kazoo connection that choose and ask servers."""

    def __init__(self, connection: Any, timeout_exception: type[Exception]) -> None:
        self._shuffled = connection._expand_client_hosts  # noqa: SLF001 - it has no public name
        self._attempt = connection._connect  # noqa: SLF001
        self._invoke = connection._invoke  # noqa: SLF001
        self._timeout_exception = timeout_exception
        self._tried: Server | None = None
        self._slow: Counter[Server] = Counter()
        connection._expand_client_hosts = self.lost_one_last  # noqa: SLF001
        connection._connect = self.attempt  # noqa: SLF001
        connection._invoke = self.invoke  # noqa: SLF001

    def lost_one_last(self) -> list[tuple[str, str, int]]:
        """Every server, the one that was asked last behind the others, before it the slow ones.

        None where their names cannot be looked up: kazoo then tries again, while an error would
        end its thread for good.
        """
        try:
            found = self._shuffled()
        except (OSError, ValueError) as error:  # ValueError: a label is empty or too long
            log.warning("could not look up the servers of zookeeper: %s", error)
            return []
        return sorted(
            found,
            key=lambda server: (server[1:] == self._tried, self._slow[server[1:]]),
        )

    def attempt(self, host: str, address: str, port: int) -> Any:
        """Ask this server for the session."""
        self._tried = address, port
        return self._attempt(host, address, port)

    def invoke(self, timeout_s: float, request: Any, xid: int | None = None) -> Any:
        """A request of the beginning of a connection; raises what kazoo raises."""
        if not isinstance(request, Connect) or self._tried is None:
            return self._invoke(timeout_s, request, xid)
        server = self._tried
        patience_s = min(timeout_s, PATIENCE_S * 2 ** self._slow[server])
        try:
            answer = self._invoke(patience_s, request, xid)
        except self._timeout_exception:
            if patience_s < timeout_s:
                self._slow[server] += 1
            raise
        self._slow.pop(server, None)
        return answer
