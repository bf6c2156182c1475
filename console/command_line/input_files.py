"""Files that a command is given: their text or their JSON, or one line that says why not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from .failure import Failure

STANDARD_INPUT: Final = Path("-")


def text_of(path: Path) -> str:
    """The text of a file, or of standard input for ``-``; UTF-8, whatever the terminal speaks.

    Raises Failure for other bytes, OSError for a file that cannot be read.
    """
    data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{path} is no text in UTF-8: byte {error.start} begins none") from None


def document_of(path: Path, what: str) -> Any:
    """The JSON in a file that should be ``what``; raises Failure, OSError."""
    try:
        return json.loads(text_of(path))
    except json.JSONDecodeError as error:
        why = f"no JSON at line {error.lineno} column {error.colno}"
        raise Failure(f"{path} is no {what}: {why}") from None
    except RecursionError:
        raise Failure(f"{path} is no {what}: it is nested too deeply") from None


def malformed(path: Path, what: str, error: Exception) -> Failure:
    """What to raise where a document turned out to lack something while it was read."""
    lacks = isinstance(error, KeyError) and error.args
    why = f"it has no {error.args[0]!r}" if lacks else "a part of it has another form"
    return Failure(f"{path} is no {what}: {why}")
