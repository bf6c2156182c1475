"""A file that is on the disk before a change begins: the way back from it.

Source: docs/spec/users.md §7, wishes 7 and 8.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from barnabas.client.os_errors import describe_os_error

from .failure import Failure

_MODE: Final = 0o600


def write_new_file(path: Path, data: bytes) -> None:
    """Write it durably, file and directory fsynced; raises Failure when it exists already."""
    try:
        # O_EXCL: a file that is there may be the only way back from an earlier change.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
    except FileExistsError:
        raise Failure(f"nothing was changed: the undo file {path} is there already") from None
    except OSError as error:
        raise Failure(
            f"nothing was changed: no undo file can be written: {describe_os_error(error)}"
        ) from None


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
