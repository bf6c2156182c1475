"""Which leader wrote which part of a log: the start offset of every leader epoch.

Kept in ``leader-epoch-checkpoint``, lines of "epoch startOffset". The file is written by the
flush that makes the batches of an epoch durable, before the recovery point moves; what a crash
leaves out, recovery finds again in the batch headers above that point.
Source: docs/spec/log.md §2.7; §9 pitfalls P14 and P42.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, Self

from barnabas.protocol.log_files.checkpoints import LEADER_EPOCHS as FILE_NAME
from barnabas.protocol.log_files.checkpoints import format_lines, parse_epochs

__all__ = ["FILE_NAME", "NONE", "LeaderEpochs"]

NONE: Final = -1


class LeaderEpochs:
    """Epochs and their start offsets, both ascending."""

    __slots__ = ("_epochs", "_starts", "latest", "version")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NONE
        """The newest epoch, -1 when none is known. Kept, since every append compares with it."""
        self.version = 0
        """Grows with every change, to know whether the file is behind."""
        for epoch, start in pairs:
            self.assign(epoch, start)
        self.version = 0

    @classmethod
    def from_text(cls, text: str) -> Self:
        """As the file has it; raises BadCheckpoint."""
        return cls(parse_epochs(text))

    def to_bytes(self) -> bytes:
        """The whole file."""
        return format_lines(self.pairs)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """``epoch`` begins at ``start``: entries that contradict this go.

        Nothing changes when the newest entry is of that epoch already.
        """
        assert epoch >= 0
        assert start >= 0
        if epoch == self.latest:
            return
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start))
        self._keep(slice(0, keep))
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
        self.version += 1

    def _keep(self, part: slice) -> None:
        if len(self._epochs[part]) != len(self._epochs):
            self._epochs, self._starts = self._epochs[part], self._starts[part]
            self.latest = self._epochs[-1] if self._epochs else NONE
            self.version += 1

    def truncate_from_end(self, offset: int) -> None:
        """Forget epochs that start at ``offset`` or later."""
        self._keep(slice(0, bisect_left(self._starts, offset)))

    def truncate_from_start(self, offset: int) -> None:
        """Forget what lies below ``offset``; the epoch at ``offset`` then starts there."""
        first = bisect_right(self._starts, offset) - 1
        if first < 0 or (first == 0 and self._starts[0] == offset):
            return
        self._keep(slice(first, None))
        self._starts[0] = offset
        self.version += 1

    def clear(self) -> None:
        """Forget everything."""
        self._keep(slice(0, 0))

    def at(self, offset: int) -> int:
        """The epoch that wrote ``offset``; -1 when not known."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NONE

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The epoch at or below ``epoch`` and where it ends; (-1, -1) when unknown.

        The newest epoch ends at ``log_end``. One older than all known ends where the first
        known one begins.
        """
        if epoch < 0 or epoch > self.latest:
            return NONE, NONE
        if epoch == self.latest:
            return epoch, log_end
        higher = bisect_right(self._epochs, epoch)
        if higher == 0:
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]
