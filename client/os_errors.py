"""The text of an operating system's error, without numbers and Python's notation."""

from __future__ import annotations

import os


def describe_os_error(error: OSError) -> str:
    """``FILE: no such file or directory``; without a file the reason alone."""
    reason = _reason(error)
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if _is_path(name)]
    return f"{' -> '.join(named)}: {reason}" if named else reason


def _reason(error: OSError) -> str:
    text = error.strerror or str(error) or type(error).__name__
    if error.strerror and text[1:2].islower():  # but not "I/O error"
        text = text[0].lower() + text[1:]
    return text


def _is_path(name: object) -> bool:
    return isinstance(name, str | bytes) and bool(name)
