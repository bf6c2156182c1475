"""Run a test on the simulated loop, where an hour of waiting takes no time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from tests.sim.simulated_loop import SimulatedLoop

P = ParamSpec("P")


def in_simulated_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a coroutine a test; the disk may be a real one, threads are simulated too."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=lambda: SimulatedLoop(1)) as runner:
            runner.run(test(*args, **kwargs))

    return run
