"""Compiles the hot modules into a wheel, where that is asked for; docs/decisions/0012 says why.

Does nothing unless HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 (`make compiled-wheel`): plain wheels, source
distributions and editable installs need no compiler.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModulesHook(BuildHookInterface[BuilderConfig]):
    """Puts extension modules beside the sources that they are made from.

    The sources stay in the wheel: tracebacks quote them, and type checkers read them.
    """

    _made: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the wheel after the Python and the machine that it is for."""
        if version == "editable":
            return
        self._made = TemporaryDirectory(prefix="barnabas-compiled-")
        command = [sys.executable, "-m", "barnabas.console.development.compile_modules"]
        subprocess.run([*command, self._made.name], cwd=self.root, check=True)  # noqa: S603
        made = Path(self._made.name)
        for file in made.rglob("*.so"):
            build_data["force_include"][str(file)] = str(file.relative_to(made))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: it is in the wheel."""
        if self._made is not None:
            self._made.cleanup()
