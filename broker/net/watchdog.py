"""Logs the requests that wait longer than twice their own time-out: nothing should.

Who waits is answered by the part that it waits for. One that forgets it, or waits for itself, would
leave a client hanging and no trace (a partition once stopped without a line). Looked at
every LOOK_S, a part of the connections in each turn of the loop, and nothing is noted per request:
how long one waits counts from the first look that finds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.handlers.call import PendingResponse

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
LINES_MAX: Final = 10
"""Lines of one look; the others are counted in one more."""
TURN_CONNECTIONS: Final = 1000


class Sighting(NamedTuple):
    """A request that waited when it was looked at."""

    pending: PendingResponse
    since: float
    is_logged: bool


class Watchdog:
    """Remembers what it saw in its last look, at most one request of each connection."""

    def __init__(
        self, connections: Callable[[], Iterable[Connection]], now: Callable[[], float]
    ) -> None:
        self._connections = connections
        self._now = now
        self._seen: dict[Connection, Sighting] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Log what has waited too long, each request once."""
        seen: dict[Connection, Sighting] = {}
        late = 0
        for number, connection in enumerate(list(self._connections()), 1):
            if not number % TURN_CONNECTIONS:
                await asyncio.sleep(0)
            pending = connection.longest_waiting()
            if pending is None:
                continue
            known = self._seen.get(connection)
            if known is None or known.pending is not pending:
                known = Sighting(pending, self._now(), is_logged=False)
            elif not known.is_logged and self._waited_ms(known) > 2 * pending.wait_ms:
                known = known._replace(is_logged=True)
                late += 1
                if late <= LINES_MAX:
                    self._log(connection, known)
            seen[connection] = known
        if late > LINES_MAX:
            log.warning("more requests wait longer than twice their time-out n=%d", late)
        self._seen = seen

    def _waited_ms(self, sighting: Sighting) -> float:
        return (self._now() - sighting.since) * 1000

    def _log(self, connection: Connection, sighting: Sighting) -> None:
        route = sighting.pending.route
        log.warning(
            "a request waits longer than twice its time-out host=%s api=%s version=%d"
            " waited_ms=%d timeout_ms=%d",
            connection.host,
            route.name,
            route.version,
            self._waited_ms(sighting),
            sighting.pending.wait_ms,
        )
