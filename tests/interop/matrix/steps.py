"""What every program of the matrix does and prints: one JSON object, an outcome for each step.

A program runs in the environment of one release of one client, without anything of ours but this
file: BOOTSTRAP TOPIC GROUP are its arguments. A step that fails is told by its error, and the next
one is tried. tests/interop/test_client_releases.py says what the outcomes have to be.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

PARTITIONS = 3
FIRST = 30
MORE = 3
T0 = int(time.time() * 1000) - 3_600_000
"""When the first record was written: not so long ago that retention would delete it."""
RETENTION = "86400000"
PATIENCE_S = 180.0

T = TypeVar("T")


class Steps:
    """The arguments, and the outcomes so far."""

    def __init__(self) -> None:
        self.bootstrap, self.topic, self.group = sys.argv[1:]
        self.outcomes: dict[str, Any] = {}

    def run(self, name: str, ask: Callable[..., Any], *arguments: Any) -> None:
        """Do one step and note what came of it."""
        try:
            self.outcomes[name] = ask(*arguments)
        except Exception as failure:  # noqa: BLE001 - every way to fail is told
            self.outcomes[name] = f"{type(failure).__name__}: {failure}"

    def show(self) -> None:
        """Print the outcomes; the last thing to do."""
        print(json.dumps(self.outcomes))  # noqa: T201 - this is what it is for


def sent(first: int, count: int) -> list[tuple[int, int, bytes, bytes]]:
    """Partition, timestamp, key and value of the records to produce: so many in each partition."""
    return [
        (partition, T0 + number * 1000, b"key %d" % number, b"%d/%d" % (partition, number))
        for number in range(first, first + count)
        for partition in range(PARTITIONS)
    ]


def until(ask: Callable[[], T], what: str) -> T:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.05)


def by_partition(pairs: Iterable[tuple[int, Any]]) -> dict[str, Any]:
    """Partition numbers as JSON has them."""
    return {str(partition): value for partition, value in sorted(pairs)}
