"""Waiting for a condition: polled until it holds, never longer than a deadline."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.02
WITHIN_S = 90.0
"""Nothing that works takes so long, not even beside a machine full of other tests."""


class TooLate(AssertionError):  # noqa: N818 - says what happened
    """The condition did not come to hold; the text tells what was seen last."""


def eventually(ask: Callable[[], T], *, within_s: float = WITHIN_S, what: str = "") -> T:
    """Ask until the answer is true, and return it.

    Raises TooLate after ``within_s``. What ``ask`` raises is not caught.
    """
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not (seen := ask()):
        if time.monotonic() > deadline:
            raise TooLate(f"not within {within_s:g} s: {what or ask} (last answer: {seen!r})")
        pause.wait(POLL_S)
    return seen


def await_process_end(pid: int, within_s: float = 120) -> None:
    """Return when the process is gone, whoever its parent is."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([watched], [], [], within_s)[0], f"process {pid} lives on"
    finally:
        os.close(watched)
