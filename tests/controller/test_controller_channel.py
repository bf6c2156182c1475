"""What a controller's channel tells of the connections that it loses.

Source: docs/spec/cluster.md §2.4.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.controller.channel_manager import ControllerChannel, QueuedRequest
from barnabas.client.errors import Disconnected


class Link:
    """Answers so many requests, then its node has closed it."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    async def request(
        self, message: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        if not self._answers:
            raise Disconnected("the other side closed the connection")
        self._answers -= 1
        return message

    async def close(self) -> None:
        pass


async def told_of(links: list[Link], orders: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says once all orders are answered over these links, one after the other."""

    async def dial(host: str, port: int) -> Link:
        return links.pop(0)

    channel = ControllerChannel(1, ("127.0.0.1", 1), dial, timeout_ms=1000, backoff_s=0)
    running = asyncio.create_task(channel.run())
    for number in range(orders):
        answered = asyncio.Event()
        channel.send(QueuedRequest(number, 0, lambda _, done=answered: done.set()))  # type: ignore[misc]
        async with asyncio.timeout(60):
            await answered.wait()
    running.cancel()
    return [record.getMessage() for record in caplog.records]


async def test_a_connection_that_idled_until_its_node_closed_it_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await told_of([Link(1), Link(1)], 2, caplog) == []


async def test_an_order_that_a_new_connection_does_not_carry_either_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = await told_of([Link(1), Link(0), Link(0), Link(1)], 2, caplog)
    assert line.startswith("delayed an order node=1")
