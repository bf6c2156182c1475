"""A seeded event loop: virtual time, in-memory network, an executor that only takes time.

Source: docs/spec/reliability.md §5. One seed gives one history; nothing outside is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import selectors
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final
from unittest import mock
from zlib import crc32

from tests.sim.simulated_network import Network

LONGEST_S = 2 * 24 * 3600.0
TURNS_MAX: Final = 1 << 40
"""As good as any number."""
_MOMENT: Final = struct.Struct("<d")


class Deadlock(AssertionError):  # noqa: N818 - what happened
    """Nothing is ready and nothing is scheduled, yet somebody still waits."""


class Endless(AssertionError):  # noqa: N818 - what happened
    """More time, or more turns, than any story here takes have passed: somebody waits in vain."""


class _TimeKeeper(selectors.BaseSelector):
    """Stands where the operating system waits: advances the clock instead."""

    def __init__(self, turns_max: int) -> None:
        self.now = 0.0
        self.turns_left = turns_max
        self.trace = 0
        """A checksum of every moment at which something happened."""
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is scheduled")
        if timeout > 0:
            self.now += timeout
            self.trace = crc32(_MOMENT.pack(self.now), self.trace)
        self.turns_left -= 1
        if self.turns_left < 0:
            raise Endless(f"too many turns of the loop within {self.now:.0f} simulated seconds")
        if self.now > LONGEST_S:
            raise Endless(f"not over after {self.now:.0f} simulated seconds")
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


@contextlib.contextmanager
def seeded_runner(seed: int, *limits: int) -> Iterator[tuple[asyncio.Runner, SimulatedLoop]]:
    """A runner of one history, and its loop; nonces of logins are the seed's too."""
    with (
        mock.patch.object(secrets, "token_bytes", random.Random(seed).randbytes),
        asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed, *limits)) as runner,
    ):
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        yield runner, loop


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock, network and executor are decided by ``seed`` alone."""

    last_trace: ClassVar[str] = ""
    """That of the loop that was closed last."""

    def __init__(self, seed: int, turns_max: int = TURNS_MAX) -> None:
        """``turns_max`` bounds a story that makes no headway while hardly any time passes."""
        self._keeper = _TimeKeeper(turns_max)
        super().__init__(self._keeper)
        self.random = random.Random(seed)
        self.network = Network(self, self.random)
        self._clock_resolution = 1e-9
        self.wall_shift_ms = 0
        """So far the wall clock was set off."""

    @property
    def trace(self) -> str:
        """What happened so far, when and in which order: equal for equal histories."""
        return f"{self._keeper.trace:08x}{self.network.trace:08x}"

    def close(self) -> None:
        SimulatedLoop.last_trace = self.trace
        super().close()

    def time(self) -> float:
        return self._keeper.now

    def wall_ms(self) -> int:
        """A wall clock that starts on 2026-11-21 and runs with the loop, unless it is set."""
        return 1_795_219_200_000 + int(self._keeper.now * 1000) + self.wall_shift_ms

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def finish() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except BaseException as error:  # noqa: BLE001 - handed on to whoever waits
                future.set_exception(error)

        self.call_later(self.random.uniform(0.0001, 0.005), finish)
        return future

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any, port: int, **_: Any
    ) -> Any:
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        await asyncio.sleep(self.network.latency())
        while not self.network.is_reachable(host, port):  # noqa: ASYNC110 - simulated
            await asyncio.sleep(0.01)
        return self.network.connect(protocol_factory, host, port)
