"""The Go programs of tests/interop/go, built once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.download_cache import CACHE, fetched

from .needs import Unobtainable, obtained, program

SOURCES: Final = Path(__file__).parents[1] / "interop" / "go"
PROGRAMS: Final = ("franz", "sarama")
NEWEST: Final = ""
EARLIER: Final = "earlier"
"""Two years older: earlier.mod, and the build tag of that name."""
_BUILD_S: Final = 900
_BUILT: Final = "built"
_MISSING: Final = ("dial tcp", "proxy", "module lookup disabled", "toolchain", "requires go")
"""What go says when it reaches no module proxy, or is too old itself."""


@cache
def built(release: str = NEWEST) -> Path:
    """The folder of the programs with one release of the clients; skips where none can be built."""
    go = program("go", package="golang")
    folder = CACHE / f"interop-go-{release or 'newest'}-{_fingerprint()}"

    def build(beside: Path) -> None:
        for name in PROGRAMS:
            _build(go, release, name, beside / name)
        (beside / _BUILT).touch()

    return obtained(
        f"Go programs with the {release or 'newest'} clients",
        lambda: fetched(folder, _BUILT, build),
        remedy="a module proxy that can be reached, and a Go as new as go.mod says",
    )


def _build(go: str, release: str, name: str, target: Path) -> None:
    command = [go, "build", "-trimpath", "-o", str(target), f"./{name}"]
    if release:
        command[2:2] = [f"-modfile={release}.mod", f"-tags={release}"]
    done = subprocess.run(
        command,
        cwd=SOURCES,
        env=os.environ | {"GOFLAGS": "-mod=readonly -buildvcs=false"},
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if any(word in done.stderr for word in _MISSING):
        raise Unobtainable(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr


def _fingerprint() -> str:
    """Changes with every source and with the modules that go.sum names."""
    read = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            read.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    return read.hexdigest()[:16]
