"""Gaps: the bytes of a segment that cannot be read, and reading what lies around them.

A gap counts as one batch that holds all the offsets that were in it; who asks for one of them is
refused. How gaps are found: recovery/quarantine.py. Source: docs/spec/log.md §3.4 and §3.7 check 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from .batch_headers import BatchHeader, Read, Span, entries, spans


class Gap(NamedTuple):
    """A run of bytes of one segment that cannot be read, and the offsets that were in it."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str


class Gaps:
    """The gaps of one segment, in order; most have none. They are replaced whole."""

    __slots__ = ("_gaps",)

    def __init__(self, gaps: Iterable[Gap] = ()) -> None:
        self._gaps = tuple(gaps)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def __iter__(self) -> Iterator[Gap]:
        return iter(self._gaps)

    @property
    def end_offset(self) -> int:
        """No gap holds it or one above it."""
        return self._gaps[-1].next_offset if self._gaps else 0

    def below(self, size: int) -> Gaps:
        """Those that begin in the first ``size`` bytes."""
        return Gaps(gap for gap in self._gaps if gap.position < size)

    def at(self, offset: int) -> Span | None:
        """The gap that holds ``offset``, as if it were one batch."""
        for gap in self._gaps:
            if gap.first_offset <= offset < gap.next_offset:
                size = gap.end - gap.position
                return Span(gap.position, size, gap.first_offset, gap.next_offset - 1)
        return None

    def readable_end(self, position: int, end: int) -> int:
        """Up to where all is readable behind ``position``, at most ``end``."""
        begins = [gap.position for gap in self._gaps if position < gap.position < end]
        return min(begins, default=end)

    def spans(self, read: Read, position: int, end: int) -> Iterator[Span]:
        """As :func:`batch_headers.spans`, without the gaps."""
        if not self._gaps:
            return spans(read, position, end)
        return chain.from_iterable(spans(read, *run) for run in self._runs(position, end))

    def entries(self, read: Read, position: int, end: int) -> Iterator[BatchHeader]:
        """As :func:`batch_headers.entries`, without the gaps."""
        if not self._gaps:
            return entries(read, position, end)
        return chain.from_iterable(entries(read, *run) for run in self._runs(position, end))

    def _runs(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        for gap in self._gaps:
            if position < min(gap.position, end):
                yield position, min(gap.position, end)
            position = max(position, gap.end)
        if position < end:
            yield position, end
