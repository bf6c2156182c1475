"""Requests to a group's offset manager, which is looked for again when it moves.

Source: docs/spec/coordinator.md §1.9 and §6.9. The brokers to ask first come from whoever owns
this, so that a channel outlives every broker it began with.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Final

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster, Codes, Unreachable
from barnabas.client.errors import (
    Disconnected,
    KafkaError,
    RequestTimedOut,
    TlsFailed,
    known_code,
)
from barnabas.client.retry import Attempts, Remedy, remedy
from barnabas.protocol.errors import ErrorCode

Brokers = Callable[[], Awaitable[Sequence[str]]]
"""Where brokers are now, as ``host:port``; empty when none is up."""

_LONG_MS: Final = 1 << 40


class OffsetManager:
    """Asks the coordinator of one group, and asks again as its error codes say.

    Waits between two tries begin at ``config.retry_backoff_ms`` and double up to
    ``config.retry_backoff_ms_max``. Close it.
    """

    def __init__(
        self, group: str, brokers: Brokers, config: ClientConfig, random: Random | None = None
    ) -> None:
        self.group = group
        self._brokers = brokers
        self._config = config
        self._random = random or Random()  # noqa: S311 - spreads retries, keeps no secret
        self._cluster: Cluster | None = None

    async def ask(self, message: Any, codes: Codes, *, retry_for_ms: int | None) -> Any:
        """The answer of the coordinator, once none of its ``codes`` asks for another try.

        Gives up after ``retry_for_ms`` (0: after the first try; None: never) and raises KafkaError;
        at once for a code that no waiting cures.
        """
        clock = asyncio.get_running_loop().time
        most_ms = _LONG_MS if retry_for_ms is None else retry_for_ms
        retry = dataclasses.replace(self._config, api_timeout_ms=most_ms)
        attempts = Attempts(retry, self._random, clock())
        while True:
            try:
                cluster = await self._connected()
                answer = await cluster.ask_coordinator(self.group, message)
                step, why = remedy(map(known_code, codes(answer)))
                if step is Remedy.GIVE_UP:
                    return answer
                failure = KafkaError(why)
            except KafkaError as error:
                if not error.retriable or _is_refused(error):
                    raise
                step, failure = Remedy.LOOK_AGAIN, error
            if step is Remedy.LOOK_AGAIN:
                await self._look_again(failure)
            pause_s = attempts.backoff_after(failure.code, clock())
            if pause_s is None:
                raise failure
            await asyncio.sleep(pause_s)

    async def _look_again(self, failure: KafkaError) -> None:
        if isinstance(failure, Disconnected | RequestTimedOut):
            await self.close()  # whoever is up now, in another order, will be asked instead
        elif self._cluster is not None:
            self._cluster.forget_coordinator(self.group)

    async def close(self) -> None:
        """End the connections; the next call opens others."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def _connected(self) -> Cluster:
        if self._cluster is None:
            brokers = await self._brokers()
            if not brokers:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is up")
            order = self._random.sample(list(brokers), len(brokers))  # the first may be ill
            self._cluster = Cluster(order, self._config, random=self._random)
        return self._cluster


def _is_refused(error: KafkaError) -> bool:
    """Whether brokers are up, and one side does not accept the other's certificate."""
    causes = error.failures if isinstance(error, Unreachable) else [error]
    return any(isinstance(cause, TlsFailed) for cause in causes)
