"""Our package on the way to executors: a zip of what runs here, for clusters that lack it.

Python modules only: what they need besides (pyarrow, msgpack, crc32c and the like) has parts in C
and must be on the machines already, or come as an archive. Source: docs/spec/pipeline.md §5.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

PACKAGES: Final = ("barnabas", "pyspark_barnabas")
_NEEDED: Final = frozenset({"protocol", "client", "coordinator", "pipeline"})
"""The folders that pipelines import."""


def ship(spark: SparkSession) -> Path | None:
    """Hand our package to the executors of ``spark``; where they run in this process, nothing.

    The zip, which lasts as long as the session's temporary files.
    """
    context = spark.sparkContext
    if (context.master or "local").startswith("local"):
        return None
    made = build_zip(Path(tempfile.mkdtemp(prefix="barnabas-ship-")) / "barnabas.zip")
    context.addPyFile(str(made))
    return made


def build_zip(path: Path) -> Path:
    """Write the packages of this installation into one zip that Python can import from."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            root = _folder(package)
            for source in sorted(_sources(root)):
                archive.write(source, f"{package}/{source.relative_to(root).as_posix()}")
    return path


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent


def _sources(root: Path) -> list[Path]:
    """The modules of a package; its folders may be links, as in a checkout."""
    found = list(root.glob("*.py"))
    for folder in root.iterdir():
        if folder.name in _NEEDED:
            found += folder.rglob("*.py")
    return found
