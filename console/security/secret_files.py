"""Files with secrets: made once, for their owner alone, and never written over.

Source: docs/spec/security.md §10 (S100).
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o700
_SECRET_BYTES: Final = 32


class FileSet:
    """The files of one run: what was made, and what was there and stayed as it was."""

    def __init__(self) -> None:
        self.made: list[Path] = []
        self.kept: list[Path] = []

    def directory(self, path: Path) -> Path:
        """Make it for its owner alone; one that is there keeps its mode."""
        if not path.is_dir():
            self.directory(path.parent)
            path.mkdir(mode=DIRECTORY_MODE)
        return path

    def write(self, path: Path, text: str, mode: int = SECRET_MODE) -> str:
        """What the file holds afterwards: ``text``, or what it held before. Raises OSError.

        It appears whole or not at all, so that a run that was cut off can be run again.
        """
        if path.exists():
            self.kept.append(path)
            return path.read_text(encoding="utf-8")
        self.directory(path.parent)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        _create(draft, text, mode)
        try:
            os.link(draft, path)  # fails where another run was faster, unlike a rename
        except FileExistsError:
            self.kept.append(path)
            return path.read_text(encoding="utf-8")
        finally:
            draft.unlink()
        self.made.append(path)
        return text

    def secret(self, path: Path) -> str:
        """The secret in the file: 64 hexadecimal digits, unless somebody wrote another there."""
        return self.write(path, secrets.token_hex(_SECRET_BYTES) + "\n").strip()


def replace(path: Path, text: str, mode: int = SECRET_MODE) -> None:
    """Put other contents in place of a file's, all at once."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    _create(draft, text, mode)
    draft.replace(path)


def _create(path: Path, text: str, mode: int) -> None:
    """Never there with another mode, not even for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), stat.S_IMODE(mode))
