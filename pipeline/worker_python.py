"""The interpreter that Spark starts its workers with on this machine, made quicker to start.

Spark puts its own Python package on their path as a zip, before the one that is installed. A zip
holds no bytecode, so every process that is started compiles what it imports of it, for 0.6 s. It
puts a jar there, too, in which each process looks for every module, for up to 0.1 s. The source of
a stream is such a process, once a query.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(".cache/barnabas/python-for-spark")
_WRAPPER: Final = """#!/bin/sh
# Leaves Spark's zip of its Python package out, which is installed, compiled already, and its jars.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    "{home}"/python/lib/*.zip | "{home}"/jars/*.jar) ;;
    *) kept="$kept${{kept:+:}}$entry" ;;
  esac
done
export PYTHONPATH="$kept"
exec "{python}" "$@"
"""


def worker_python() -> str:
    """What to set ``PYSPARK_PYTHON`` to for workers on this machine, and on no other.

    This interpreter itself where it would not find pyspark without the zip, or a wrapper cannot
    be written.
    """
    home = _installed_spark()
    if home is None or os.environ.get("SPARK_HOME", str(home)) != str(home):
        return sys.executable
    text = _WRAPPER.format(home=home, python=sys.executable)
    name = f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        return str(_written(Path.home() / _FOLDER / name, text))
    except (OSError, RuntimeError):  # the second: nobody's home
        return sys.executable


def _installed_spark() -> Path | None:
    """The folder of the pyspark that is installed where this interpreter always looks."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent
    site_directories = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return home if str(home.parent) in site_directories else None


def _written(path: Path, text: str) -> Path:
    """A file that can be run; another process may be writing the same."""
    if not os.access(path, os.X_OK):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(text)
        beside.chmod(0o700)
        beside.replace(path)
    return path
