"""The house rules that no linter knows: sizes, first sentences and the import package.

One test a rule and not one a file: eight thousand tests that say nothing took a minute of each run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "coordinator", "client", "broker", "console", "pipeline")
FOLDERS = (*PACKAGES, "pyspark_barnabas", "tests", "benchmarks")
LINES_MAX = 600
"""A longer file says in its docstring why it is one idea."""
FUNCTION_LINES_MAX = 60
VAGUE_NAMES = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}


class Source:
    """One file of ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.lines = self.text.splitlines()
        tree = ast.parse(self.text)
        self.docstring = ast.get_docstring(tree) or ""
        nodes = list(ast.walk(tree))
        self.functions = [
            (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        """Name and lines of each."""
        self.imports = [name for node in nodes for name in imported(node)]


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []


@cache
def sources() -> list[Source]:
    return [Source(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def problems(rule: Callable[[Source], Iterator[str]]) -> list[str]:
    """What a rule finds in all files, with the file's name before it."""
    found = [(source.path.relative_to(ROOT), what) for source in sources() for what in rule(source)]
    return [f"{path}: {what}" for path, what in found]


def test_a_file_opens_with_a_sentence_and_is_short_enough_to_read() -> None:
    def rule(source: Source) -> Iterator[str]:
        if not source.docstring:
            yield "the module has no docstring"
        if len(source.lines) > LINES_MAX and "one idea" not in source.docstring.lower():
            yield f"{len(source.lines)} lines"
        if source.path.name in VAGUE_NAMES:
            yield "a name that says nothing"

    assert problems(rule) == []
    assert len(sources()) > 1_500


def test_a_function_fits_on_a_screen() -> None:
    def rule(source: Source) -> Iterator[str]:
        for name, length in source.functions:
            if length > FUNCTION_LINES_MAX:
                yield f"{name} has {length} lines"

    assert problems(rule) == []


def test_nobody_imports_a_package_by_its_bare_name() -> None:
    def rule(source: Source) -> Iterator[str]:
        for name in source.imports:
            if name.split(".")[0] in PACKAGES:
                yield f"say import barnabas.{name}"

    assert problems(rule) == []


def test_an_unfinished_thought_names_its_issue() -> None:
    def rule(source: Source) -> Iterator[str]:
        for number, line in enumerate(source.lines, start=1):
            is_open = re.search(r"\b(TODO|FIXME|XXX)\b", line)
            if is_open and not re.search(r"issue \d+", line) and source.path != Path(__file__):
                yield f"line {number}"

    assert problems(rule) == []


def test_no_test_waits_without_end_for_a_child_when_it_fails() -> None:
    """So does ``Popen`` as a context: say tests.harness.child.Child."""

    def rule(source: Source) -> Iterator[str]:
        is_test = source.path.is_relative_to(ROOT / "tests") and source.path != Path(__file__)
        if is_test and re.search(r"^\s*with .*\bPopen\(", source.text, re.MULTILINE):
            yield "with Popen(...)"

    assert problems(rule) == []


def test_the_import_package_links_to_every_folder_of_ours() -> None:
    for folder in PACKAGES:
        if (ROOT / folder).is_dir():
            link = ROOT / "barnabas" / folder
            assert link.is_symlink()
            assert link.resolve() == ROOT / folder
