"""This process and all below it, as Linux lists them.

Source: proc(5) for the meaning of /proc/PID/stat.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process; ``words`` stand in its ``stat`` from the state on."""

    folder: Path
    """In /proc."""
    name: str
    words: list[str]


def process_tree() -> Iterator[Process]:
    """Parents before their children; who ends meanwhile is told as it was, or left out."""
    found: dict[int, Process] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            front, _, behind = stat.read_text().rpartition(")")
            number = int(stat.parent.name)
            found[number] = Process(stat.parent, front.partition("(")[2], behind.split())
            children[int(found[number].words[1])].append(number)
    left = [os.getpid()]
    while left:
        number = left.pop()
        left += children[number]
        yield found[number]
