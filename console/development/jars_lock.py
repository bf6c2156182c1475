"""The jars of ZooKeeper by their hashes: what ``jars.lock`` says, and whether a directory has it.

Source: docs/spec/console.md §8. Imports the standard library only: ``make demo`` runs it before
anything is installed.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_LOCK: Final = Path(__file__).with_name("jars.lock")
MEGABYTE: Final = 1_000_000
PARTS: Final = ("log", "netty")


@dataclass(frozen=True)
class LockedJar:
    """One file, by Maven's coordinates and by its bytes.

    ``part`` names what it is for, ``log`` or ``netty``; empty: ZooKeeper does not run without it.
    """

    group: str
    artifact: str
    version: str
    sha256: str
    size: int
    licence: str
    part: str

    @property
    def file_name(self) -> str:
        """Its name in Maven's repository and in pyspark."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """Where it is below the address of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"

    def is_in(self, directory: Path) -> bool:
        """The file is there with these very bytes."""
        try:
            content = (directory / self.file_name).read_bytes()
        except OSError:
            return False
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class JarsLock:
    """All of ``jars.lock``."""

    jars: Sequence[LockedJar]
    pyspark: str
    """The release of pyspark whose source package holds the same files."""
    pyspark_size: int
    """Bytes of that package."""
    digest: str
    """Changes with the file: names the directory of the user's cache."""

    @property
    def size(self) -> int:
        """Bytes of all jars."""
        return sum(jar.size for jar in self.jars)

    def wrong_in(self, directory: Path) -> list[str]:
        """The files that ``directory`` lacks or has with other bytes."""
        return [jar.file_name for jar in self.jars if not jar.is_in(directory)]

    def chosen_in(self, directory: Path, parts: Collection[str]) -> list[Path]:
        """The paths of the jars there that ZooKeeper needs in any case, and of these parts."""
        return [directory / jar.file_name for jar in self.jars if jar.part in ("", *parts)]


@cache
def jars_lock() -> JarsLock:
    """What the file beside this module says."""
    text = _LOCK.read_bytes()
    content = tomllib.loads(text.decode())
    jars = [_jar(entry) for entry in content["jar"]]
    digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:16]
    return JarsLock(jars, content["pyspark"], content["pyspark_bytes"], digest)


def _jar(entry: Mapping[str, Any]) -> LockedJar:
    group, artifact, version = entry["name"].split(":")
    return LockedJar(
        group=group,
        artifact=artifact,
        version=version,
        sha256=entry["sha256"],
        size=entry["bytes"],
        licence=entry["licence"],
        part=entry.get("part", ""),
    )
