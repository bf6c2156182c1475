"""What tests a file of tests has, for lists that name them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]


@cache
def names_in(path: str) -> frozenset[str]:
    """The functions of a file, and what it assigns: state machines are tests by assignment.

    ``path`` is relative to the folder of tests.
    """
    tree = ast.parse((_TESTS / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    named = {node.name for node in ast.walk(tree) if isinstance(node, functions)}
    made = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(named | made)
