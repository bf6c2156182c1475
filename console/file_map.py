"""Every source file with the first sentence of its docstring: a part of docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (
    "protocol",
    "coordinator",
    "client",
    "broker",
    "console",
    "pipeline",
    "pyspark_barnabas",
)


def file_map() -> str:
    """A heading for each folder, what the folder is, and a line for each file in it."""
    return "\n".join(line for folder in FOLDERS for line in _tree(ROOT / folder))


def _tree(folder: Path) -> Iterator[str]:
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    yield from (f"### {folder.relative_to(ROOT)}/", "")
    yield from (_first_sentence(folder / "__init__.py") + ".", "")
    yield from (f"- `{path.name}`: {_first_sentence(path)}" for path in modules)
    yield from [""] * bool(modules)
    for below in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from _tree(below)


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".").replace("``", "`")
