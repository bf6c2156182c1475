"""Examples of README.md and of the pages in docs/: cut out, and run as a reader would run them.

A reader has followed the README, then opens any page and copies any block of it. So the blocks of
the README share their names, in their order; a block of a page has the README's names and what is
in the cluster after it, and nothing of the other blocks of its page.

```python      runs where `await` may stand at the top, as in a notebook. A block that calls
               asyncio.run runs beside the loop.
```console     each line after `$ ` (and `> `) goes to the shell; what follows is what it prints,
               with `...` for what differs each time, and times and ids of changes as they come;
               a comment `# exit 1` says how it ends.
# tests/x.py   as the first line of a block: it is a file of a project. All such blocks of a page
               are one example: the project's tests must pass.
```sh          goes to the shell as a whole.

localhost:9092, 127.0.0.1:9092 and localhost:2181 become the addresses of the test.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.waiting import TooLate, eventually

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|console|sh|toml|ini)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.(?:py|toml|ini))\n")
EXIT = re.compile(r"# exit (\d+)$")
BY_NATURE = (
    (re.compile(r"\b[0-9a-f]{12}\b"), "CHANGE"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
)
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
COMMAND_S = 300
WARNINGS_ARE_ERRORS = ("-W", "error", "-m", "pytest", "-W", "error", "-p", "no:asyncio")
"""pytest-asyncio warns of an option that the project does not set."""


@dataclass(frozen=True)
class Block:
    """One example: what it is written in, its text, its page and the line it begins at."""

    kind: str
    text: str
    page: Path
    line: int

    @property
    def file(self) -> str | None:
        """The file of a project that it shows, if it does."""
        found = FILE.match(self.text)
        return found[1] if found else None

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


Example = Sequence[Block]
"""One block, or all that are files of one project."""


def pages() -> list[Path]:
    """The pages with examples, but for the README."""
    return [page for page in sorted((ROOT / "docs").rglob("*.md")) if list(blocks(page))]


def blocks(page: Path) -> Iterator[Block]:
    """What could be run of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield Block(found[1], found[2], page, text.count("\n", 0, found.start()) + 2)


def examples(page: Path) -> list[Example]:
    """The examples of a page, in their order; a project is the last."""
    single = [[block] for block in blocks(page) if block.file is None]
    project = [block for block in blocks(page) if block.file is not None]
    return [*single, *([project] if project else [])]


class Reader:
    """Runs examples one after the other; ``names`` are those that Python blocks see and leave."""

    def __init__(
        self, known: Mapping[str, str], directory: Path, names: Mapping[str, Any] | None = None
    ) -> None:
        self._known = known
        self._directory = directory
        self.names: dict[str, Any] = dict(names or {"__name__": "__main__"})

    async def run(self, example: Example) -> None:
        """Run one example; fails where it does not do what it says."""
        block = example[0]
        if block.file is not None:
            await asyncio.to_thread(self._run_project, example)
        elif block.kind == "console":
            await asyncio.to_thread(self._run_commands, block)
        elif block.kind == "sh":
            await asyncio.to_thread(self._check, block, self._shell(f"set -e\n{block.text}"), 0)
        else:
            await self._run_python(block)

    def _replaced(self, text: str) -> str:
        """The addresses a reader would use, as they are here."""
        for host in ("localhost", "127.0.0.1"):
            text = text.replace(f"{host}:9092", self._known["bootstrap"])
        return text.replace("localhost:2181", self._known["zookeeper"])

    async def _run_python(self, block: Block) -> None:
        tree = ast.parse(self._replaced(block.text), str(block.page))
        ast.increment_lineno(tree, block.line - 1)
        code = compile(
            tree, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        if code.co_flags & inspect.CO_COROUTINE:
            async with asyncio.timeout(COMMAND_S):
                await eval(code, self.names)
        elif "asyncio.run(" in block.text:
            await asyncio.to_thread(exec, code, self.names)
        else:
            exec(code, self.names)

    def _run_commands(self, block: Block) -> None:
        for command, expected in _commands(block.text):
            if " history " in command:  # it is written behind the answer
                try:
                    eventually(lambda: _is_as_told(expected, self._shell(command).stdout))  # noqa: B023
                except TooLate:
                    pass  # what it prints is said below
            done = self._shell(command)
            wanted = EXIT.search(command)
            self._check(block, done, int(wanted[1]) if wanted else 0)
            assert _is_as_told(expected, done.stdout), f"{block.name}: {command}\n{done.stdout}"

    def _run_project(self, files: Example) -> None:
        """Run the tests that the page shows, on a cluster of their own unless they take this."""
        home = self._directory / files[0].page.stem
        for block in files:
            assert block.file is not None
            path = home / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        command = [sys.executable, *WARNINGS_ARE_ERRORS, "-p", "no:cacheprovider", "-q"]
        done = self._ran(command, home)
        self._check(files[0], done, 0)
        assert " skipped" not in done.stdout, done.stdout
        assert " warning" not in done.stdout, done.stdout

    def _check(self, block: Block, done: subprocess.CompletedProcess[str], code: int) -> None:
        said = f"{block.name}\nexit code {done.returncode}\n{done.stdout}"
        assert done.returncode == code, said
        assert "Traceback" not in done.stdout, said

    def _shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return self._ran(["/bin/sh", "-c", self._replaced(command)])

    def _ran(
        self, command: list[str], directory: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=directory or self._directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
        return {**kept, "PATH": path, "BARNABAS_BOOTSTRAP": self._known["bootstrap"]}


def _is_as_told(expected: str, said: str) -> bool:
    if not expected:
        return True
    for pattern, instead in BY_NATURE:
        expected, said = pattern.sub(instead, expected), pattern.sub(instead, said)
    return doctest.OutputChecker().check_output(expected, said, COMPARED)


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
