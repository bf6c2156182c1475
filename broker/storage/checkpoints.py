"""Checkpoints on disk: which offset each partition has reached, in files of protocol/log_files.

Source: docs/spec/log.md §2.7.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from barnabas.protocol.log_files.checkpoints import (
    BadCheckpoint,
    Offsets,
    format_lines,
    format_offsets,
    parse_lines,
    parse_offsets,
)

from .files import Files, StorageError

__all__ = [
    "BadCheckpoint",
    "Offsets",
    "format_lines",
    "format_offsets",
    "parse_lines",
    "parse_offsets",
    "read_offsets",
]

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"


def read_offsets(files: Files, path: Path) -> dict[tuple[str, int], int]:
    """The offsets in a file; none when it is missing. Raises BadCheckpoint, StorageError."""
    try:
        data = files.read_whole(path)
    except StorageError as error:
        if error.is_missing:
            return {}
        raise
    try:
        return parse_offsets(data.decode())
    except UnicodeDecodeError:
        raise BadCheckpoint("not text") from None
