"""Compile the hot modules with mypyc, for a wheel that holds them beside their sources.

Run by hatch_build.py, in the environment that builds the wheel, as
``python -m barnabas.console.development.compile_modules DIRECTORY``. Source: docs/decisions/0012.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from barnabas.broker.runtime.compiled_modules import COMPILED_MODULES

_PACKAGE: Final = Path(__file__).parents[2]
_CHECKS: Final = (
    # What is not compiled is read for its types alone: the environment that builds has none of the
    # extras, and their absence is no error of these modules.
    "--follow-imports=silent",
    "--ignore-missing-imports",
    "--no-warn-unused-ignores",
    "--no-warn-unused-configs",
)
_SHARED_LIBRARY: Final = "barnabas"
"""All modules are one library, ``barnabas__mypyc``, in which they call each other directly."""


def compile_into(directory: Path, modules: tuple[str, ...] = COMPILED_MODULES) -> None:
    """Leave the extension modules in ``directory``, each in the folder of its package.

    Exits with mypy's words where a module cannot be compiled.
    """
    with TemporaryDirectory(prefix="barnabas-mypyc-") as place:
        # Copied: here the packages are links to folders, and mypyc writes beside what it reads.
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(_PACKAGE, Path(place) / _PACKAGE.name, ignore=ignored)
        shutil.copy(_PACKAGE.parent / "pyproject.toml", place)
        os.chdir(place)
        try:
            _build(modules, directory)
        finally:
            os.chdir(directory)


def _build(modules: tuple[str, ...], directory: Path) -> None:
    # Only where wheels are compiled: neither is needed to run anything.
    from mypyc.build import mypycify
    from setuptools import Distribution

    files = [f"{name.replace('.', '/')}.py" for name in modules]
    extensions = mypycify(
        [*_CHECKS, *files], opt_level="2", debug_level="0", group_name=_SHARED_LIBRARY
    )
    command = Distribution({"name": "barnabas", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    command.build_lib, command.build_temp = str(directory), "objects"
    command.ensure_finalized()
    command.run()


def main(words: list[str]) -> int:
    """Compile into the directory that is named."""
    compile_into(Path(words[0]).resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
