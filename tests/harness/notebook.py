"""Runs a notebook as Jupyter does, cell after cell in one namespace, without Jupyter.

``await`` may stand at the top of a cell; what the last line of a cell is worth is not shown.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any


def code_cells(notebook: Path) -> list[str]:
    """The code of a notebook of format 4, in its order."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


async def run_notebook(notebook: Path) -> dict[str, Any]:
    """Run every cell; the names that they leave. What a cell raises says which one it was."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(code_cells(notebook), start=1):
        where = f"{notebook.name}[{number}]"
        code = compile(source, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        try:
            result = eval(code, names)
            if code.co_flags & inspect.CO_COROUTINE:
                await result
        except BaseException as error:
            error.add_note(f"in cell {number} of {notebook.name}:\n{source}")
            raise
    return names
