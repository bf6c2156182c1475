"""Server-sent events: what comes from now on, as rows of a page, in bundles.

A stream ends with its session and when the console stops; a browser that hides the page closes it.
Source: docs/spec/console.md §2.1 (a bundle in 2 s, 64 KiB/s, a comment line in 15 s, 64 streams).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from .records.matching import ShownRecord
from .records.tail import Bundle, Tail

STREAMS_MOST: Final = 64
BUNDLE_S: Final = 2.0
BUNDLE_BYTES: Final = 128 << 10
"""Of the rows in one bundle: 64 KiB a second."""
COMMENT_S: Final = 15.0
MEDIA_TYPE: Final = "text/event-stream"

RowsOf = Callable[[list[ShownRecord]], str]
IsWanted = Callable[[], bool]


class Streams:
    """All streams of a console: how many there are, and whether they are to end."""

    def __init__(self) -> None:
        self.count = 0
        self.closing = asyncio.Event()

    @property
    def has_room(self) -> bool:
        """One more may begin."""
        return self.count < STREAMS_MOST and not self.closing.is_set()

    async def events(self, tail: Tail, rows_of: RowsOf, is_wanted: IsWanted) -> AsyncIterator[str]:
        """Events with rows, the newest first, until nobody wants them any more.

        ``is_wanted`` is asked before each bundle: the reader's session may have ended.
        """
        self.count += 1
        try:
            yield "retry: 5000\n\n"
            quiet_since = time.monotonic()
            while not self.closing.is_set() and is_wanted():
                bundle = await tail.bundle()
                if bundle.records or bundle.dropped or bundle.problem:
                    yield event_of(bundle, rows_of)
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since > COMMENT_S:
                    yield ": still here\n\n"
                    quiet_since = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.closing.wait(), BUNDLE_S)
        finally:
            self.count -= 1


def event_of(bundle: Bundle, rows_of: RowsOf) -> str:
    """One event: rows as a browser puts them into its table, and a line of what was left out."""
    rows: list[str] = []
    size, dropped = 0, bundle.dropped
    for record in reversed(bundle.records):
        row = rows_of([record])
        size += len(row.encode())
        if size > BUNDLE_BYTES:
            dropped += len(bundle.records) - len(rows)
            break
        rows.append(row)
    text = "".join(_event("rows", "".join(rows)) if rows else "")
    if dropped:
        text += _event("note", f"{dropped:,} records came too fast to be shown")
    if bundle.problem:
        text += _event("note", bundle.problem)
    return text


def _event(name: str, data: str) -> str:
    lines = data.replace("\r", " ").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
