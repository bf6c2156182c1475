"""Examples of a page in docs/: cut out, and run as a reader would run them.

```python      run in order in one namespace and one loop, as the cells of a notebook are: `await`
               may stand at the top, `bootstrap` and `zookeeper` are known. A block that calls
               asyncio.run runs beside the loop.
```console     each line after `$ ` (and `> `) goes to the shell; what follows is what it prints,
               with `...` for what differs each time; a comment `# exit 1` says how it ends.
# tests/x.py   as the first line of a block: it is a file of a project, whose tests must pass.
<!--python     what a reader does not see, up to `-->`: run like any other block of Python.

Other blocks are not run. localhost:9092 and localhost:2181 become the addresses of the test.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^(?:```(?P<kind>python|console|toml|ini)\n(?P<shown>.*?)^```|<!--python\n(?P<hidden>.*?)^-->)",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w/]+\.(?:py|toml|ini))\n")
EXIT = re.compile(r"# exit (\d+)$")
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
COMMAND_S = 120


@dataclass(frozen=True)
class Block:
    """One example: what it is written in, its text, the line of the page it begins at."""

    kind: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file of a project that it shows, if it does."""
        found = FILE.match(self.text)
        return found[1] if found else None


def blocks(page: str) -> Iterator[Block]:
    """The examples of a page, in their order."""
    for found in BLOCK.finditer(page):
        kind, shown, hidden = found["kind"], found["shown"], found["hidden"]
        yield Block(kind or "python", shown or hidden or "", page.count("\n", 0, found.start()) + 2)


class Notebook:
    """Runs the examples of one page; ``known`` are the variables they may use."""

    def __init__(self, path: Path, known: Mapping[str, str], directory: Path) -> None:
        self._path = path
        self._known = known
        self._directory = directory
        self._names: dict[str, Any] = {"__name__": "__main__", **known}
        self._project: dict[str, str] = {}

    async def run(self) -> int:
        """Run every example of the page; how many there were."""
        count = 0
        for block in blocks(self._path.read_text()):
            count += 1
            if block.file is not None:
                self._project[block.file] = block.text
            elif block.kind == "python":
                await self._run_python(block)
            elif block.kind == "console":
                await asyncio.to_thread(self._run_commands, block)
        if any(name.endswith(".py") for name in self._project):
            await asyncio.to_thread(self._run_project)
        return count

    def _replaced(self, text: str) -> str:
        """The addresses a reader would use, as they are here."""
        text = text.replace("localhost:9092", self._known["bootstrap"])
        return text.replace("localhost:2181", self._known["zookeeper"])

    async def _run_python(self, block: Block) -> None:
        tree = ast.parse(self._replaced(block.text), str(self._path))
        ast.increment_lineno(tree, block.line - 1)
        code = compile(tree, str(self._path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, self._names)
        elif "asyncio.run(" in block.text:
            await asyncio.to_thread(exec, code, self._names)
        else:
            exec(code, self._names)

    def _run_commands(self, block: Block) -> None:
        for command, expected in _commands(block.text):
            done = self._shell(command)
            said = done.stdout
            wanted = EXIT.search(command)
            code = int(wanted[1]) if wanted else 0
            where = f"{self._path.name}:{block.line}: {command}"
            assert done.returncode == code, f"{where}\nexit code {done.returncode}\n{said}"
            if expected:
                is_as_told = doctest.OutputChecker().check_output(expected, said, COMPARED)
                assert is_as_told, f"{where}\n{said}"

    def _shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", self._replaced(command)],
            cwd=self._directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )

    def _run_project(self) -> None:
        """Run the tests that the page shows, on a cluster of their own unless they take this."""
        home = self._directory / "project"
        for name, text in self._project.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
        done = subprocess.run(
            command,
            cwd=home,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{self._path.name}\n{done.stdout}"
        assert " skipped" not in done.stdout, done.stdout

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
        return {**kept, "PATH": path, "BARNABAS_BOOTSTRAP": self._known["bootstrap"]}


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command with what it prints below."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command: list[str] = []
        lines = part.splitlines()
        command.append(lines.pop(0))
        while lines and lines[0].startswith("> "):
            command.append(lines.pop(0).removeprefix("> "))
        printed = "\n".join(lines).strip("\n")
        yield "\n".join(command), printed + "\n" if printed else ""
