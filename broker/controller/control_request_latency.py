"""Latency of control requests: how long other nodes take to answer them.

Source: kafka.controller:type=ControllerChannelManager,name=RequestRateAndQueueTimeMs in 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.runtime.latency import Latency

from .channel_manager import Dial, InterBrokerConnection


class _TimedConnection:
    """Implements InterBrokerConnection; notes how long each request took that was answered."""

    def __init__(
        self, link: InterBrokerConnection, latency: Latency, clock: Callable[[], float]
    ) -> None:
        self._link = link
        self._latency = latency
        self._clock = clock

    async def request(
        self, message: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """As the link does."""
        began = self._clock()
        answer = await self._link.request(message, version, timeout_ms)
        self._latency.observe(self._clock() - began)
        return answer

    async def close(self) -> None:
        """As the link does."""
        await self._link.close()


def timed(dial: Dial, latency: Latency, clock: Callable[[], float]) -> Dial:
    """The same way to other nodes, with every answered request noted in ``latency``."""

    async def dialled(host: str, port: int) -> InterBrokerConnection:
        return _TimedConnection(await dial(host, port), latency, clock)

    return dialled
