"""A dial that is cut short ends, whatever the loop does with what it has just connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from barnabas.client.connection.connection import Connection
from barnabas.client.connection.in_flight_requests import InFlightRequests

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
WAIT_S = 60.0


@pytest.mark.parametrize("loop", LOOPS)
def test_a_dial_that_is_cancelled_as_it_succeeds_ends(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that asked its peers once waited for such a connection for good, and never started."""
    dials: list[asyncio.Task[Connection]] = []
    made: Callable[[InFlightRequests, asyncio.BaseTransport], None]
    made = InFlightRequests.connection_made

    def cancel(requests: InFlightRequests, transport: asyncio.BaseTransport) -> None:
        made(requests, transport)
        dials[0].cancel()

    monkeypatch.setattr(InFlightRequests, "connection_made", cancel)

    async def dial() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            dials.append(asyncio.create_task(Connection.open("127.0.0.1", port)))
            done, _ = await asyncio.wait(dials, timeout=WAIT_S)
        assert done, "it waits for a connection that nobody has"
        assert dials[0].cancelled()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(dial())
