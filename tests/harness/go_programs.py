"""The Go programs of tests/interop/go, built once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SOURCES: Final = Path(__file__).parents[1] / "interop" / "go"
PROGRAMS: Final = ("franz", "sarama")
_BUILD_S: Final = 600
_MISSING: Final = ("dial tcp", "proxy", "module lookup disabled", "toolchain", "requires go")
"""What go says when it reaches no module proxy, or is too old itself."""


@cache
def built() -> Path:
    """The folder of the programs; skips the test where they cannot be built, and says why."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed: apt-get install golang")
    folder = Path("~/.cache/barnabas").expanduser() / f"interop-go-{_fingerprint()}"
    if not all((folder / name).exists() for name in PROGRAMS):
        _build(go, folder)
    return folder


def _build(go: str, folder: Path) -> None:
    """Build beside the place and move there: another session may be doing the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    flags = {"GOFLAGS": "-mod=readonly -buildvcs=false"}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as beside:
        command = [go, "build", "-trimpath", "-o", beside, *(f"./{name}" for name in PROGRAMS)]
        done = subprocess.run(
            command,
            cwd=SOURCES,
            env=os.environ | flags,
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
        if any(word in done.stderr for word in _MISSING):
            pytest.skip(f"go lacks modules: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        folder.mkdir(exist_ok=True)
        for name in PROGRAMS:
            (Path(beside) / name).replace(folder / name)


def _fingerprint() -> str:
    """Changes with every source and with the modules that go.sum names."""
    read = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            read.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    return read.hexdigest()[:16]
