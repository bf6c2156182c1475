"""How a line becomes a record: its key, its value, and what stands for null.

Source: docs/spec/users.md §2.2 (kcat -P: -K, -Z).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.console.command_line.failure import Failure

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class NewRecord(NamedTuple):
    """What is sent; None is null."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How every line of a command is read."""

    key: str | None = None
    """Of every record; None leaves it to the separator."""
    key_separator: str | None = None
    null_marker: str | None = None

    def record(self, line: bytes, number: int) -> NewRecord:
        """The record in a line, the ``number`` is for who has to find it.

        Raises Failure for a line without the separator.
        """
        if self.key_separator is None:
            key = None if self.key is None else self.key.encode(errors="surrogateescape")
            return NewRecord(self._unless_null(key), self._unless_null(line))
        before, separator, after = line.partition(self.key_separator.encode())
        if not separator:
            raise Failure(f"line {number} has no {self.key_separator!r} behind its key")
        return NewRecord(self._unless_null(before), self._unless_null(after))

    def _unless_null(self, text: bytes | None) -> bytes | None:
        is_null = self.null_marker is not None and text == self.null_marker.encode()
        return None if is_null else text


def unescaped(text: str | None) -> str | None:
    """``\\t``, ``\\n``, ``\\r``, ``\\0`` and ``\\\\`` as what they stand for."""
    if text is None:
        return None
    return re.sub(r"\\([ntr0\\])", lambda found: _ESCAPES[found[1]], text)
