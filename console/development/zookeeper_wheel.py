"""Fill the companion package barnabas-zookeeper before it is built: jars and their licences.

Run by ``make wheel`` as ``python -m barnabas.console.development.zookeeper_wheel DIR``.
Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path
from typing import Final

from barnabas.console.command_line.failure import Failure

from .fetch_jars import locked_jars

_TEXTS: Final = ("META-INF/LICENSE", "META-INF/LICENSE.txt", "META-INF/NOTICE")


def fill(package: Path) -> None:
    """Write ``jars/`` and ``licences/`` of the package anew. Raises MissingPart."""
    for name in ("jars", "licences"):
        shutil.rmtree(package / name, ignore_errors=True)
        (package / name).mkdir(parents=True)
    for jar in locked_jars():
        shutil.copyfile(jar, package / "jars" / jar.name)
        _copy_texts(jar, package / "licences")


def _copy_texts(jar: Path, directory: Path) -> None:
    with zipfile.ZipFile(jar) as content:
        for name in set(_TEXTS) & set(content.namelist()):
            target = directory / f"{jar.stem}-{Path(name).name}"
            target.write_bytes(content.read(name))


def main(words: list[str]) -> int:
    """Fill the package in the directory that is named."""
    try:
        fill(Path(words[0]))
    except Failure as failure:
        print(f"barnabas: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
