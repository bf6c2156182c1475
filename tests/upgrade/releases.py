"""Earlier releases of Barnabas, made of this repository's history, beside the one checked out.

A release is its wheel, unpacked into a folder of the cache; a process that has the folder first
in PYTHONPATH runs it, with the packages of this environment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.download_cache import CACHE, locked
from tests.harness.needs import skip_without

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Release:
    """``commit`` is what the tag names, for clones that came without tags."""

    version: str
    commit: str


BEFORE_VOTERS: Final = Release("v0.1.0", "a0b4f893bed1bd4d110d0267b07df307c390185c")
"""The last one whose controllers ask ZooKeeper alone for their authority."""


class NoHistoryError(Exception):
    """The clone lacks the commit of a release."""


def path_of(release: Release | None) -> Path:
    """What belongs first into PYTHONPATH; None is the checkout. Raises NoHistoryError."""
    if release is None:
        return ROOT
    folder = CACHE / f"barnabas-{release.version}-{release.commit[:10]}"
    with locked(folder):
        if not folder.exists():
            _unpack(release, folder)
    return folder


def history_or_skip(release: Release) -> None:
    """Skip the test where the clone is shallow."""
    if _git("cat-file", "-e", f"{release.commit}^{{commit}}").returncode:
        skip_without(f"no commit {release.commit[:10]} in this clone", "git fetch --unshallow")


def _unpack(release: Release, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        source, made = Path(place) / "source", Path(place) / "wheels"
        source.mkdir()
        archive = _git("archive", "--format=tar", release.commit)
        if archive.returncode:
            raise NoHistoryError(archive.stderr.decode(errors="replace"))
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
        _run(source, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made))
        (wheel,) = made.glob("*.whl")
        unpacked = Path(place) / "unpacked"
        pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        _run(source, *pip, "--no-deps", "--no-index", "--target", str(unpacked), str(wheel))
        unpacked.rename(folder)


def _run(directory: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=directory, check=True, capture_output=True)


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
