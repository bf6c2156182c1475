"""Holes in the offsets of a log that this node did not compact: a file says that there may be some.

A follower copies the holes that compaction left in its leader's log, with its own recovery point
still below them. A start that met one there would take it for a tail that a power cut took, and cut
off acknowledged records, as soon as the topic's `cleanup.policy` names no `compact` any more.

The file ``offset-holes`` in the partition's directory is made before the first batch behind a hole
is appended, and stays. That it is there is all that it says; Kafka and older nodes ignore it.
Source: docs/log.md, "What a crash can take".
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from barnabas.broker.storage.files import Files

FILE_NAME: Final = "offset-holes"
_VERSION: Final = b"0\n"


def note_holes(files: Files, directory: Path) -> None:
    """Say that offsets may be missing; durable once the directory is fsynced. Raises StorageError.

    Its content means nothing, so that nobody waits for that to be fsynced.
    """
    files.write_atomically(directory / FILE_NAME, _VERSION, is_synced=False)
