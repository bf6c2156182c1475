"""A run book: its commands, section by section, run as somebody would type them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess

from .needs import program

BOOKS: Final = Path(__file__).parents[2] / "docs" / "runbooks"
SECTIONS: Final = ("Sign", "Check", "Do", "Verify", "Undo")
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class RunBook:
    """One book; ``directory`` is where it is followed, ``values`` what stands in capitals."""

    def __init__(self, name: str, directory: Path, **values: object) -> None:
        text = (BOOKS / f"{name}.md").read_text()
        parts = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
        self.sections: Mapping[str, list[str]] = {
            head: _BLOCK.findall(body) for head, body in zip(parts[1::2], parts[2::2], strict=True)
        }
        self._directory = directory
        self.values = values
        self._run: set[str] = set()

    def run(self, section: str, block: int | None = None) -> str:
        """What the commands of a section print, all or one block; fails where one of them does."""
        blocks = self.sections[section]
        return "".join(
            self._block(f"{section} {number}", code)
            for number, code in enumerate(blocks)
            if block in (None, number)
        )

    def _block(self, where: str, code: str) -> str:
        self._run.add(where)
        programs = str(Path(sys.executable).parent)
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            **{name: str(value) for name, value in self.values.items()},
        }
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", code],
            cwd=self._directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{where}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def missed(self) -> list[str]:
        """Blocks that were never run."""
        every = {
            f"{section} {number}"
            for section, blocks in self.sections.items()
            for number in range(len(blocks))
        }
        return sorted(every - self._run)


OpenRunBook: TypeAlias = Callable[..., RunBook]


@contextlib.contextmanager
def following(cluster: Cluster, asked: NodeProcess, directory: Path) -> Iterator[OpenRunBook]:
    """Opens books about a cluster; at the end each of their commands must have been run.

    ``asked`` is the node whose status the commands look at.
    """
    program("curl", package="curl")
    opened: list[RunBook] = []

    def follow(name: str, **values: object) -> RunBook:
        first = {"BARNABAS_BOOTSTRAP": cluster.bootstrap, "STATUS": asked.metrics}
        book = RunBook(name, directory, **{**first, **values})
        opened.append(book)
        return book

    yield follow
    assert [book.missed() for book in opened] == [[] for _ in opened]
