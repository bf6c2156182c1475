"""What the disk refuses, as storage understands it.

Source: design section 4, rule 4 (a full disk heals, any other failure takes the directory offline).
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class StorageError(Exception):
    """The disk refused: says which path, and what it was asked to do."""

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        is_full: bool = False,
        is_missing: bool = False,
        is_locked: bool = False,
    ) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.is_full = is_full
        """No space was left, and nothing was written: may heal by itself."""
        self.is_missing = is_missing
        """There is no such file or directory."""
        self.is_locked = is_locked
        """Another process has locked the path."""


def failure(path: Path, what: str, error: OSError) -> StorageError:
    """An OSError as what storage understands."""
    return StorageError(
        path,
        f"{what}: {error.strerror or error}",
        is_full=error.errno in _FULL,
        is_missing=isinstance(error, FileNotFoundError),
    )
