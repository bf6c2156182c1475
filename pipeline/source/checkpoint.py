"""What Spark keeps of a stream's progress in its checkpoint, and what we must keep beside it.

::

    metadata          {"id": the query's id for good}
    offsets/N         "v1", a line of settings, then one line of JSON for each source
    commits/N         there once batch N is done
    barnabas-initial-offsets.json   ours: where the first batch starts

Source: docs/spec/pipeline.md §1.3 trap 6, §1.3 trap 7 and §1.3 trap 9.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from .errors import BadOption, ProgressLost
from .offsets_json import Offsets, read, written

_INITIAL: Final = "barnabas-initial-offsets.json"
_HEADER_LINES: Final = 2
_NOTHING: Final = "-"


class Checkpoint:
    """The checkpoint of one query, on a file system that this process can see."""

    def __init__(self, location: str) -> None:
        if "://" in location or (":" in location and not location.startswith("file:")):
            problem = f"{location} is no path of a mounted file system"
            raise BadOption("checkpointLocation", problem)
        self.path = Path(location.removeprefix("file:"))

    def query_id(self) -> str | None:
        """The id that the query keeps through restarts; None before its first start."""
        try:
            found = json.loads((self.path / "metadata").read_text())
        except FileNotFoundError:
            return None
        return str(found["id"])

    def done(self) -> int | None:
        """The newest batch that Spark knows to be done; None before the first."""
        return self._newest("commits")

    def planned(self) -> int | None:
        """The newest batch that Spark has fixed the offsets of."""
        return self._newest("offsets")

    def ends(self, batch: int) -> list[Any]:
        """Where each source ends in a batch, as the source gave it; None for one without news.

        Raises ProgressLost when the batch was never planned or its file cannot be read.
        """
        try:
            lines = (self.path / "offsets" / str(batch)).read_text().splitlines()
            version, sources = lines[0], lines[_HEADER_LINES:]
            if not version.startswith("v"):
                raise ValueError(version)
            return [None if line == _NOTHING else _source(line) for line in sources]
        except (OSError, ValueError, IndexError) as error:
            raise ProgressLost(f"offsets of batch {batch} in {self.path}: {error}") from error

    def topic_ends(self, batch: int) -> Offsets:
        """Where the topics end that a batch reads, of all sources that are topics."""
        found = {}
        for end in self.ends(batch):
            try:
                found.update(read(end))
            except ValueError:
                continue  # a source of another kind
        return found

    def initial(self) -> Offsets | None:
        """The offsets that :meth:`keep_initial` kept; None when there are none."""
        try:
            return read(json.loads((self.path / _INITIAL).read_text()))
        except FileNotFoundError:
            return None

    def keep_initial(self, offsets: Offsets) -> None:
        """Fix where the first batch starts, before Spark plans it, whatever happens then."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace(self.path / _INITIAL, json.dumps(written(offsets)).encode())

    def _newest(self, folder: str) -> int | None:
        try:
            names = [entry.name for entry in (self.path / folder).iterdir()]
        except FileNotFoundError:
            return None
        return max((int(name) for name in names if name.isdigit()), default=None)


def replace(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it is whole or not there at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make names that came and went in a directory last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _source(line: str) -> Any:
    """The offset of one source; newer checkpoints of Spark may name it."""
    return json.loads(line)
