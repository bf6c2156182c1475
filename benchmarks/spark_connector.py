"""Spark's own Kafka connector: its jars through Maven, once, into a cache.

Source: docs/spec/pipeline.md §3.4, which tells why these versions go together.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

import pyspark

from benchmarks.apache_kafka import IMPATIENT
from benchmarks.download_cache import CACHE, fetched

_VERSIONS: Final = {"4.0": "4.0.0", "4.1": "4.1.0"}
_NEWEST: Final = "4.2.0"
"""For every later release of pyspark."""
_TOKEN_PROVIDER: Final = "4.0.0"
_WANTED: Final = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
_MVN_S: Final = 240


class NoConnector(RuntimeError):  # noqa: N818 - reads as what happened
    """The jars are not here and cannot be had."""


def connector_jars() -> list[Path]:
    """The four jars for the pyspark installed; fetched when they are not in the cache.

    Raises NoConnector.
    """
    release = ".".join(pyspark.__version__.split(".")[:2])
    version = _VERSIONS.get(release, _NEWEST)
    folder = fetched(
        CACHE / f"spark-kafka-{version}", f"{_WANTED[0]}-*.jar", partial(_fetch, version)
    )
    jars = _found(folder)
    if not jars:
        raise NoConnector(f"mvn left no jars of {version} in {folder}")
    return jars


def _found(folder: Path) -> list[Path]:
    jars = [next(iter(sorted(folder.glob(f"{name}-[0-9]*.jar"))), None) for name in _WANTED]
    return [jar for jar in jars if jar is not None] if all(jars) else []


def _fetch(version: str, folder: Path) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise NoConnector("spark-sql-kafka is fetched with mvn: apt-get install maven")
    project = folder.parent / "pom.xml"
    project.write_text(_project(version))
    words = [mvn, "-q", "-B", *IMPATIENT, "-f", str(project), "dependency:copy-dependencies"]
    words += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=_MVN_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        said = (failure.stdout or b"").decode(errors="replace").strip().splitlines()
        raise NoConnector(f"mvn could not fetch spark-sql-kafka: {said[-1:]}") from failure


def _project(version: str) -> str:
    """A direct dependency would not hold the token provider down; the management section does."""
    group = "org.apache.spark"
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>barnabas</groupId><artifactId>connector</artifactId><version>1</version>
<dependencyManagement><dependencies><dependency><groupId>{group}</groupId>
<artifactId>spark-token-provider-kafka-0-10_2.13</artifactId><version>{_TOKEN_PROVIDER}</version>
</dependency></dependencies></dependencyManagement>
<dependencies><dependency><groupId>{group}</groupId>
<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""
