"""A compiled wheel, made and installed in an environment of its own: for measures and for tests.

The environment sees all other packages of this one. Programs that are to find the wheel's package,
and not the checkout's, run in a folder that has the checkout's other folders and not that one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("broker", "client", "console", "coordinator", "pipeline", "protocol")
COPIED: Final = ("benchmarks", "tests", "examples", "hatch_build.py", "pyproject.toml")
"""Copied, since what is in them asks where its file is."""
LINKED: Final = (
    *(".ci", ".git", "CHANGELOG.md", "Dockerfile", "Makefile", "README.md"),
    *("container", "deploy", "docker-compose.yml", "docs", "wheels"),
)
ASKED_FOR: Final = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "1"}
"""What wakes hatch_build.py."""
GIVEN: Final = "BARNABAS_COMPILED_WHEEL"
"""Names a wheel that is to be used instead of one made now, which takes minutes."""
BUILD_S: Final = 1800


def build_compiled_wheel(directory: Path) -> Path:
    """A wheel as ``make compiled-wheel`` makes it, or the one that GIVEN names, made before.

    Raises CalledProcessError without a compiler.
    """
    if given := os.environ.get(GIVEN):
        return Path(given).resolve()
    command = [sys.executable, "-m", "build", "--quiet", "--wheel", "--outdir", str(directory)]
    subprocess.run(
        [*command, str(ROOT)], env={**os.environ, **ASKED_FOR}, check=True, timeout=BUILD_S
    )
    (made,) = directory.glob("*.whl")
    return made


def install(wheel: Path, home: Path) -> Path:
    """A new environment in ``home`` that has the wheel; the path of its Python.

    A path in a .pth file makes packages importable, but no .pth files in it read: an editable
    install of the checkout is invisible there.
    """
    python = home / "bin" / "python"
    _run(sys.executable, "-m", "venv", "--without-pip", str(home))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "zz-others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def lay_out(place: Path, python: Path) -> None:
    """Make ``place`` a checkout without its import package; the sources in it are the wheel's.

    ``python`` is that of :func:`install`.
    """
    (installed,) = (python.parents[1] / "lib").glob("python*/site-packages/barnabas")
    place.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, place / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, place / name)
    for name in LINKED:
        (place / name).symlink_to(ROOT / name)
    for name in PACKAGES:
        (place / name).symlink_to(installed / name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=BUILD_S)
