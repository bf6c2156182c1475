"""The house rules that no linter knows: sizes, first sentences and the import package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "coordinator", "client", "broker", "console", "pipeline")
FOLDERS = (*PACKAGES, "pyspark_barnabas", "tests", "benchmarks")
LINES_MAX = 600
"""A longer file says in its docstring why it is one idea."""
FUNCTION_LINES_MAX = 60
VAGUE_NAMES = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def every(*folders: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "path", list(sources(*folders)), ids=lambda path: str(path.relative_to(ROOT))
    )


@every(*FOLDERS)
def test_a_file_opens_with_a_sentence_and_is_short_enough_to_read(path: Path) -> None:
    text = path.read_text()
    first = ast.get_docstring(ast.parse(text))
    assert first, "the module has no docstring"
    assert len(text.splitlines()) <= LINES_MAX or "one idea" in first.lower()
    assert path.name not in VAGUE_NAMES


@every(*FOLDERS)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


@every(*FOLDERS)
def test_nobody_imports_a_package_by_its_bare_name(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] not in PACKAGES, f"say import barnabas.{name}"


@every(*FOLDERS)
def test_an_unfinished_thought_names_its_issue(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if path != Path(__file__) and re.search(r"\b(TODO|FIXME|XXX)\b", line):
            assert re.search(r"issue \d+", line), f"line {number}"


def test_the_import_package_links_to_every_folder_of_ours() -> None:
    for folder in PACKAGES:
        if (ROOT / folder).is_dir():
            link = ROOT / "barnabas" / folder
            assert link.is_symlink()
            assert link.resolve() == ROOT / folder
