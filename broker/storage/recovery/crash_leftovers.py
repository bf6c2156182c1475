"""What a crash left in a partition's directory, put right before segments are opened.

    .deleted  on its way out: remove
    .cleaned  a result of compaction that was not complete: remove, with the swaps above it
    .swap     a complete result: takes the place of the segments it was made from

Source: docs/spec/log.md §3.3 steps 1 and 2, and §3.5; §9 pitfall P12.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from barnabas.broker.storage.files import Files
from barnabas.broker.storage.segment.batch_headers import CorruptEntry, spans

log = logging.getLogger(__name__)

_NAMED: Final = re.compile(r"(\d{20})(\.[a-z]+)(\.deleted|\.cleaned|\.swap|\.tmp)?")
_TEMPORARY: Final = (".deleted", ".tmp")


def base_offset_of(name: str) -> int | None:
    """The offset a file is named after; None for other files."""
    match = _NAMED.fullmatch(name)
    return int(match[1]) if match else None


def clear_leftovers(files: Files, directory: Path) -> list[str]:
    """Remove or rename what a crash left; returns the names of the files that remain."""
    names = files.list_directory(directory)
    for name in names:
        if name.endswith(_TEMPORARY):
            files.unlink(directory / name)
    cleaned = [name for name in names if name.endswith(".cleaned")]
    swaps = [name for name in names if name.endswith(".swap")]
    least = min((_base(name) for name in cleaned), default=None)
    for name in [*swaps, *cleaned]:
        if name in cleaned or (least is not None and _base(name) >= least):
            files.unlink(directory / name)
            log.warning("removed an unfinished compaction path=%s", directory / name)
    swaps = [name for name in swaps if least is None or _base(name) < least]
    if swaps:
        _finish_swaps(files, directory, swaps)
    return files.list_directory(directory)


def _finish_swaps(files: Files, directory: Path, swaps: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(".log.swap")]
    if logs:
        low = min(_base(name) for name in logs)
        high = max(_next_offset(files, directory / name) for name in logs)
        for name in files.list_directory(directory):
            base = base_offset_of(name)
            if base is not None and not name.endswith(".swap") and low <= base < high:
                files.unlink(directory / name)
    # A log first: it brings its indexes along, while an index alone would be removed as replaced.
    for name in sorted(swaps, key=lambda name: (_base(name), not name.endswith(".log.swap"))):
        files.rename(directory / name, directory / name.removesuffix(".swap"))
    files.sync_directory(directory)
    log.warning("finished a compaction directory=%s files=%d", directory, len(swaps))


def _next_offset(files: Files, path: Path) -> int:
    file = files.open_append(path)
    next_offset = _base(path.name)
    try:
        for span in spans(file.read, 0, file.size):
            next_offset = span.last_offset + 1
    except CorruptEntry as corrupt:
        log.warning("found a damaged swap path=%s %s", path, corrupt)
    finally:
        file.close()
    return next_offset


def _base(name: str) -> int:
    base = base_offset_of(name)
    return -1 if base is None else base
