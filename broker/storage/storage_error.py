"""What the disk refuses, as storage understands it.

Source: docs/spec/reliability.md §9.1 rule 4 (a full disk heals, any other failure takes the
directory offline).
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_BUSY: Final = frozenset({errno.EMFILE, errno.ENFILE})


class StorageError(Exception):
    """The disk refused: says which path, and what it was asked to do."""

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        is_full: bool = False,
        is_busy: bool = False,
        is_missing: bool = False,
        is_locked: bool = False,
    ) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.is_full = is_full
        """No space was left, and nothing was written: may heal by itself."""
        self.is_busy = is_busy
        """No descriptor was left to open it with: nothing was done, the disk may be well."""
        self.is_missing = is_missing
        """There is no such file or directory."""
        self.is_locked = is_locked
        """Another process has locked the path."""

    @property
    def may_heal(self) -> bool:
        """Worth another try, while everything else means that the disk cannot be trusted."""
        return self.is_full or self.is_busy


def failure(path: Path, what: str, error: OSError) -> StorageError:
    """An OSError as what storage understands."""
    return StorageError(
        path,
        f"{what}: {error.strerror or error}",
        is_full=error.errno in _FULL,
        is_busy=error.errno in _BUSY,
        is_missing=isinstance(error, FileNotFoundError),
    )
