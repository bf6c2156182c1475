"""How much work records may make where they are looked at, counted in steps.

Neither the size of a batch nor the count in its header says what it costs: a megabyte may be
50,000 empty gzip members around one record, or a record with 500,000 headers. So whoever must not
be held up for long hands a bound down to whatever decompresses, checks and converts, and does what
exceeds it elsewhere. A step is about a microsecond of one slow core.
"""

from __future__ import annotations

from typing import Final

GZIP_MEMBER_STEPS: Final = 3
ZSTD_FRAME_STEPS: Final = 2
BLOCK_STEPS: Final = 6
"""One block of LZ4 or snappy, however small."""
RECORD_STEPS: Final = 8
"""One record made into an object, or into bytes again."""

_DECOMPRESSED_BITS: Final = (10, 7, 10, 10, 9)
_COMPRESSED_BITS: Final = (10, 4, 9, 9, 6)
"""By codec: how many bytes, as a power of two, a step makes or takes."""


class TooMuchWork(Exception):  # noqa: N818 - says what happened
    """The steps were used up; nothing was changed, and the same may be done elsewhere."""


class Work:
    """Steps that are left to take."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        """Use up so many; raises TooMuchWork when there are fewer."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork

    def bytes_left(self, codec: int) -> int:
        """How many bytes may still come out of decompression."""
        return self.left << _DECOMPRESSED_BITS[codec]


def take(work: Work | None, steps: int) -> None:
    """Use up so many steps of a bound, where there is one."""
    if work is not None:
        work.take(steps)


def decompression_steps(codec: int, size: int) -> int:
    """What it costs to make ``size`` bytes of plain data."""
    return size >> _DECOMPRESSED_BITS[codec]


def compression_steps(codec: int, size: int) -> int:
    """What it costs to compress ``size`` bytes at a usual level."""
    return size >> _COMPRESSED_BITS[codec]
