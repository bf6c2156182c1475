"""Batches to be sent as they lie in their file, without being read first.

Source: docs/spec/log.md §6.4: the range must not shrink while it is sent; never pad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from barnabas.broker.storage.files import StorageError
from barnabas.protocol.errors import Refused

from .batch_headers import CorruptEntry
from .segment import IndexLost, Segment

SLICE_BYTES_MIN: Final = 64 << 10
"""Fewer bytes are read at once: that is cheaper than keeping track of them."""


class Withdrawn(Exception):  # noqa: N818 - what has happened
    """The bytes are not there any more; whoever has begun to send them must stop."""


class FileSlice:
    """So many bytes of a segment, which stays open for as long as anybody refers to this.

    ``failed`` is the log's treatment of a disk that refuses; it raises Refused.
    """

    __slots__ = ("_count", "_cuts", "_failed", "_position", "_segment")

    def __init__(
        self,
        segment: Segment,
        position: int,
        count: int,
        failed: Callable[[StorageError], NoReturn],
    ) -> None:
        segment.hold()
        self._segment = segment
        self._position = position
        self._count = count
        self._cuts = segment.cuts
        self._failed = failed

    def __del__(self) -> None:
        self._segment.release()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"FileSlice({self._segment.path('.log').name}, {self._position}, {self._count})"

    @property
    def segment_base(self) -> int:
        """The base offset of its segment."""
        return self._segment.base_offset

    def is_followed(self, end: int) -> bool:
        """Whether its segment has batches behind these, none of which holds ``end`` or more."""
        done = self._position + self._count
        if done >= self._segment.size:
            return False
        try:
            beyond = self._segment.find(end)
        except (CorruptEntry, IndexLost, StorageError):
            return True  # whoever reads on is told
        return beyond is None or done < beyond.position

    def send(self, descriptor: int, done: int, count: int) -> int:
        """Send up to ``count`` bytes, from the ``done``-th on, to a socket: how many went.

        Raises BlockingIOError when the socket is full, OSError when its peer is gone, Withdrawn.
        """
        if self._segment.cuts != self._cuts:
            raise Withdrawn(f"{self!r}: the log was truncated")
        try:
            sent = self._segment.send(
                descriptor, self._position + done, min(count, self._count - done)
            )
        except StorageError as error:
            self._withdraw(error)
        if not sent:
            raise Withdrawn(f"{self!r}: the file ends")
        return sent

    def read(self, done: int = 0, count: int | None = None) -> bytes:
        """Up to ``count`` bytes from the ``done``-th on, or all; for whoever cannot send files.

        Raises Withdrawn.
        """
        if self._segment.cuts != self._cuts:
            raise Withdrawn(f"{self!r}: the log was truncated")
        try:
            left = self._count - done
            return self._segment.read(
                self._position + done, left if count is None else min(count, left)
            )
        except StorageError as error:
            self._withdraw(error)

    def _withdraw(self, error: StorageError) -> NoReturn:
        try:
            self._failed(error)
        except Refused:
            raise Withdrawn(str(error)) from error
