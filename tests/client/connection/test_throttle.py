"""Our client leaves a broker alone for as long as that asks (KIP-219).

Source: docs/spec/security.md §4 (S61).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.connection.throttle import is_for_client
from barnabas.client.errors import RequestTimedOut
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import metadata
from tests.client.scripted_broker import ScriptedBroker, scripted_broker

THROTTLE_MS: Final = 250


class Throttling:
    """Tells the first client to wait, and notes when requests come."""

    def __init__(self, throttle_time_ms: int = THROTTLE_MS) -> None:
        self.came: list[float] = []
        self.names: list[str] = []
        self._throttle_time_ms = throttle_time_ms

    def __call__(
        self, request: metadata.MetadataRequest, version: int
    ) -> metadata.MetadataResponse:
        is_first = not self.came
        self.came.append(asyncio.get_running_loop().time())
        self.names += [topic.name or "" for topic in request.topics or ()]
        told = self._throttle_time_ms if is_first else 0
        return metadata.MetadataResponse(throttle_time_ms=told)


async def open_connection(broker: ScriptedBroker, **how: Any) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, **how)


def asking(name: str = "t") -> metadata.MetadataRequest:
    return metadata.MetadataRequest(topics=[metadata.Topic(name=name)])


async def test_the_next_request_waits_and_all_that_wait_keep_their_order() -> None:
    answer = Throttling()
    async with (
        scripted_broker({ApiKey.METADATA: answer}) as broker,
        await open_connection(broker) as connection,
    ):
        await connection.request(asking())
        names = [f"t{number}" for number in range(20)]
        await asyncio.gather(*(connection.request(asking(name)) for name in names))
    assert answer.came[1] - answer.came[0] >= THROTTLE_MS / 1000
    assert answer.names == ["t", *names]


async def test_what_an_old_broker_has_waited_for_is_not_waited_for_again() -> None:
    answer = Throttling(3_600_000)
    async with (
        scripted_broker({ApiKey.METADATA: answer}, ranges={ApiKey.METADATA: (0, 5)}) as broker,
        await open_connection(broker) as connection,
    ):
        await connection.request(asking())
        await connection.request(asking())
    assert len(answer.came) == 2


async def test_more_than_a_request_may_take_is_told_and_the_connection_stays() -> None:
    answer = Throttling(THROTTLE_MS)
    async with (
        scripted_broker({ApiKey.METADATA: answer}) as broker,
        await open_connection(broker) as connection,
    ):
        await connection.request(asking())
        with pytest.raises(RequestTimedOut, match="throttles for more than 1 ms"):
            await connection.request(asking(), timeout_ms=1)
        assert not connection.is_closed
        await connection.request(asking())
    assert answer.came[1] - answer.came[0] >= THROTTLE_MS / 1000
    assert broker.connections == 1


async def test_who_is_cancelled_while_waiting_holds_nobody_up() -> None:
    answer = Throttling()
    async with (
        scripted_broker({ApiKey.METADATA: answer}) as broker,
        await open_connection(broker) as connection,
    ):
        await connection.request(asking())
        first, second = (asyncio.create_task(connection.request(asking(n))) for n in ("a", "b"))
        await asyncio.sleep(0)
        first.cancel()
        await second
    assert answer.names == ["t", "b"]


@pytest.mark.parametrize(
    ("key", "version", "waits"),
    [
        (ApiKey.PRODUCE, 5, False),
        (ApiKey.PRODUCE, 6, True),
        (ApiKey.FETCH, 7, False),
        (ApiKey.FETCH, 8, True),
        (ApiKey.INIT_PRODUCER_ID, 0, False),
        (ApiKey.INIT_PRODUCER_ID, 1, True),
        (ApiKey.ALTER_CLIENT_QUOTAS, 0, True),
    ],
)
def test_the_version_says_who_waits(key: ApiKey, version: int, waits: bool) -> None:
    assert is_for_client(key, version) is waits
