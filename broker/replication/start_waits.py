"""Requests that wait until every replica of a partition has dropped what lies below an offset.

Source: docs/spec/log.md §4.3: a low watermark is the least log start of the live replicas.
"""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode

from .partition_context import OnComplete


class StartWaits:
    """Who waits for the low watermark of one partition."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, OnComplete]] = []

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, offset: int, told: OnComplete) -> None:
        """Have ``told`` NONE when the low watermark is at ``offset``, or why it never will be."""
        self._waiting.append((offset, told))

    def forget(self, told: OnComplete) -> None:
        """Nobody waits for this any more; harmless when it was told."""
        self._waiting = [each for each in self._waiting if each[1] is not told]

    def moved(self, low_watermark: int) -> None:
        """Tell those whose offset has been reached."""
        if not self._waiting:
            return
        reached = [told for offset, told in self._waiting if offset <= low_watermark]
        self._waiting = [each for each in self._waiting if each[0] > low_watermark]
        for told in reached:
            told(ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        """Tell everybody that it is over."""
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            told(code)
