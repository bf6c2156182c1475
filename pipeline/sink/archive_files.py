"""A directory of archived batches, of which only what a manifest lists counts.

::

    archive.json                     the query that owns the directory
    manifests/0000000007.json        batch 7: files, rows, ranges, where the source ended
    temporary/<random>.parquet       being written, or left by an attempt that died
    <topic>/<date>/0000000007-0003.parquet

A batch is there once its manifest is, and that comes into being by one rename.
Source: docs/spec/pipeline.md §2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.pipeline.source.checkpoint import replace, sync_directory
from barnabas.pipeline.source.errors import BadOption, ProgressLost

_OWNER: Final = "archive.json"
_MANIFESTS: Final = "manifests"
_TEMPORARY: Final = "temporary"

Manifest = Mapping[str, Any]


class ArchiveFiles:
    """The files of one archive, on a file system that driver and executors share."""

    def __init__(self, location: str) -> None:
        if "://" in location:
            raise BadOption("path", f"{location} is no path of a mounted file system")
        self.path = Path(location.removeprefix("file:")).absolute()

    @property
    def temporary(self) -> Path:
        """Where tasks write; made when it is missing."""
        folder = self.path / _TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def claim(self, query: str) -> None:
        """Make the directory this query's; raises ProgressLost when it is another's.

        A checkpoint that was deleted would start again at batch 0, and take old manifests for its
        own: so it is refused.
        """
        owner = self.owner()
        if owner is None:
            self.path.mkdir(parents=True, exist_ok=True)
            replace(self.path / _OWNER, json.dumps({"query": query}).encode())
        elif owner != query:
            raise ProgressLost(
                f"{self.path} is the archive of query {owner}, not of {query}: its checkpoint was "
                "deleted or another one is used"
            )

    def owner(self) -> str | None:
        """The query that owns the directory; None before its first batch."""
        try:
            return str(json.loads((self.path / _OWNER).read_text())["query"])
        except FileNotFoundError:
            return None

    def batches(self) -> list[int]:
        """The batches that are there, in order."""
        try:
            names = [entry.name for entry in (self.path / _MANIFESTS).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(name[:-5]) for name in names if name[:-5].isdigit())

    def manifest(self, batch: int) -> Manifest | None:
        """What a batch consists of; None when it is not there."""
        try:
            found: Manifest = json.loads(self._manifest_path(batch).read_text())
        except FileNotFoundError:
            return None
        return found

    def manifests(self) -> Iterator[Manifest]:
        """The manifests of all batches in order."""
        for batch in self.batches():
            found = self.manifest(batch)
            assert found is not None, "manifests are never removed"
            yield found

    def store(self, batch: int, manifest: Manifest) -> None:
        """Make a batch be there: after this it survives whatever happens."""
        path = self._manifest_path(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, (json.dumps(manifest, indent=1) + "\n").encode())
        sync_directory(self.path)

    def move_in(self, temporary: Path, topic: str, date: str, batch: int, ordinal: int) -> str:
        """Move a finished file where it belongs; its name, relative to the archive.

        A file of an attempt that died without a manifest is replaced.
        """
        name = f"{topic}/{date}/{batch:010}-{ordinal:04}.parquet"
        target = self.path / name
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True)
            sync_directory(self.path)
            sync_directory(target.parent.parent)
        temporary.replace(target)
        sync_directory(target.parent)
        return name

    def files(self) -> list[str]:
        """The paths of all files that count."""
        return [
            str(self.path / file["name"])
            for manifest in self.manifests()
            for file in manifest["files"]
        ]

    def strays(self) -> list[Path]:
        """Files that no manifest lists: left by attempts that died, or of a batch under way."""
        listed = set(self.files())
        found = [path for path in self.path.glob("*/*/*.parquet") if str(path) not in listed]
        return sorted([*found, *(self.path / _TEMPORARY).glob("*.parquet")])

    def _manifest_path(self, batch: int) -> Path:
        return self.path / _MANIFESTS / f"{batch:010}.json"


def digest(manifest: Manifest) -> str:
    """A short name for exactly this manifest: what a group's commit says it stands for."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:32]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
