"""A virtual environment with the wheel of this checkout, and pytest in it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.plugin.foreign_project import ForeignProject

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, as `make wheel` makes it."""
    wheels = tmp_path_factory.mktemp("wheels")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels))
    (made,) = wheels.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def interpreter(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel installed, and sees all other packages of this environment.

    A path in a .pth file makes packages importable but no .pth files in it read: an editable
    install of this checkout is invisible there.
    """
    home = tmp_path_factory.mktemp("environment")
    python = home / "venv" / "bin" / "python"
    _run(sys.executable, "-m", "venv", "--without-pip", str(home / "venv"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    (packages / "zz-others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def foreign_project(interpreter: Path, tmp_path: Path) -> ForeignProject:
    """An empty project, in which pytest can be run."""
    return ForeignProject(interpreter, tmp_path)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, cwd=ROOT, timeout=600)
