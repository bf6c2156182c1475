"""How the console speaks: tables for people, JSON for programs, one line for a failure."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, two spaces between; nothing after the last."""
    cells = [list(map(str, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def print_json(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2))


def note(text: str) -> None:
    """A line for people beside the output: never part of what a script reads."""
    with contextlib.suppress(OSError, ValueError):  # a reader that is gone is told of elsewhere
        sys.stdout.flush()  # where both go to one file, what was printed before stands before
    print(text, file=sys.stderr)


def shown(value: object) -> object:
    """What a table shows for a value that may be unknown."""
    return "-" if value is None else value
