"""`make test` is green where nothing is installed, and says what was skipped for want of what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.download_cache import fetched
from tests.harness import needs
from tests.harness.listed_tests import bare
from tests.harness.needs import REMEDY, counted
from tests.harness.skip_report import table

ROOT = Path(__file__).parent.parent
BARE = ROOT / "tests" / "bare.txt"
SPARK = ROOT / "tests" / "pipeline"
"""One session fixture starts Spark for all of it: a few of its files show that any Java will do."""
BARE_S = 800
"""A whole pytest that collects a good part of the tests, on a machine full of others."""
OTHER_REASONS = {
    "tests/harness/fixtures.py",  # the cluster was started elsewhere
    "tests/console/development/test_class_archive.py",  # a Java that has it done
}
"""Where a test skips although there is nothing that anybody could install."""


def sources() -> Iterator[Path]:
    return (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))


def test_a_skip_for_want_of_something_names_the_remedy() -> None:
    direct = re.compile(r"pytest\.(skip|importorskip)\(")
    found = {str(path.relative_to(ROOT)) for path in sources() if direct.search(path.read_text())}
    assert found == OTHER_REASONS | {"tests/harness/needs.py"}


def test_the_table_counts_skips_by_what_lacked() -> None:
    kcat, go = f"no kcat{REMEDY}apt-get install kcat", f"no go{REMEDY}apt-get install golang"
    assert counted([kcat, go, go]) == [
        (2, "no go", "apt-get install golang"),
        (1, "no kcat", "apt-get install kcat"),
    ]
    assert table([kcat, "not on a Monday"])[1:] == [
        "    1  no kcat          apt-get install kcat",
        "    1  not on a Monday  -",
    ]
    assert table([]) == ["Nothing: everything that tests can use was here."]


def test_what_compares_with_kafka_or_needs_a_program_skips_where_nothing_is_installed(
    tmp_path: Path,
) -> None:
    files = (
        "interop/test_record_formats.py",
        "interop/test_java_tools.py",
        "interop/test_transactions_of_kafka.py",
        "client/admin/test_admin_on_kafka.py",
        "client/classic/test_classic_beside_java.py",
        "containers/test_cluster.py",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/{name}" for name in files)],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=BARE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " failed" not in done.stdout
    assert "apt-get install maven" in done.stdout


def test_what_could_not_be_fetched_is_not_tried_again_in_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "CACHE", tmp_path)
    tries: list[int] = []

    def fail() -> Path:
        tries.append(1)
        raise needs.Unobtainable("no way there")

    for _ in range(2):
        monkeypatch.setattr(needs, "_outcomes", {})  # as in another worker
        with pytest.raises(pytest.skip.Exception, match=r"no jam .no way there.; remedy: cook"):
            needs.obtained("jam", fail, remedy="cook")
    assert len(tries) == 1


def test_a_fetch_that_breaks_off_leaves_nothing_that_counts_as_the_whole(tmp_path: Path) -> None:
    def half(folder: Path) -> None:
        (folder / "a.jar").touch()
        raise OSError("the power went")

    with pytest.raises(OSError, match="power"):
        fetched(tmp_path / "libs", "a.jar", half)
    assert not (tmp_path / "libs").exists()
    fetched(tmp_path / "libs", "a.jar", lambda folder: (folder / "a.jar").touch())
    assert (tmp_path / "libs" / "a.jar").exists()


def test_ci_runs_again_without_tools_whatever_could_use_them() -> None:
    listed = [ROOT / entry for entry in bare()]
    assert all(path.exists() for path in listed)
    tools = {
        ROOT / "console" / "development" / "java.py",
        ROOT / "tests" / "harness" / "needs.py",
    }
    assert all(path.exists() for path in tools)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        is_listed = any(entry == path or entry in path.parents for entry in listed)
        if not is_listed and SPARK not in path.parents:
            files = loaded(path)
            assert not files & tools, f"add {path.relative_to(ROOT)} to {BARE.name}"
            assert not any("shutil.which" in file.read_text() for file in files & in_tests(files))


def in_tests(files: set[Path]) -> set[Path]:
    return {path for path in files if ROOT / "tests" in path.parents}


def loaded(test: Path) -> set[Path]:
    """The files of this repository that a test file and the conftest.py beside it import."""
    fixtures = [folder / "conftest.py" for folder in test.parents if folder != ROOT / "tests"]
    waiting = [test, *(path for path in fixtures if ROOT in path.parents and path.exists())]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imported(path)
    return found


@cache
def imported(path: Path) -> list[Path]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = ".".join(path.parent.relative_to(ROOT).parts) if node.level else ""
            base = f"{folder}.{node.module or ''}".strip(".") if node.level else node.module or ""
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    paths = {ROOT / f"{name.removeprefix('barnabas.').replace('.', '/')}.py" for name in names}
    return [path for path in paths if path.exists()]
