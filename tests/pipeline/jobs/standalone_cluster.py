"""A Spark cluster of a master and two workers, and an interpreter for it that lacks our package.

Started by pyspark's own class path, as bin/spark-class does. The interpreter has everything that
we need but not ourselves: what runs there was shipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from barnabas.console.development.ports import free_ports

_START_S: Final = 120


def bare_python(directory: Path) -> Path:
    """A virtual environment that sees all installed packages but ours."""
    venv.create(directory, with_pip=False, symlinks=True)
    (theirs,) = (directory / "lib").glob("python3*/site-packages")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    ours = Path(spec.origin).parents[1]
    for entry in ours.iterdir():
        if "barnabas" not in entry.name and not (theirs / entry.name).exists():
            (theirs / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


class StandaloneCluster:
    """Use it in a ``with``; ``url`` is what a session is given as its master."""

    def __init__(self, directory: Path, python: Path) -> None:
        self._directory = directory
        self._python = python
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        port, *others = free_ports(4)
        self.url = f"spark://127.0.0.1:{port}"
        self._start(
            "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(others[0]),
        )  # fmt: skip
        self._wait("master", "I have been elected leader")
        for number, web in enumerate(others[1:], start=1):
            self._start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(web),
                "--work-dir", str(self._directory / f"work-{number}"), self.url,
            )  # fmt: skip
        for number in (1, 2):
            self._wait(f"worker-{number}", "Successfully registered with master")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(120)

    @property
    def executors(self) -> int:
        """How many executors ran an application."""
        return sum(1 for _ in self._directory.glob("work-*/app-*/*/stderr"))

    def _start(self, name: str, *words: str) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        jars = Path(spec.origin).parent / "jars"
        java = shutil.which("java") or str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
        environment = {
            **_environment(),
            "PYSPARK_PYTHON": str(self._python),
            "SPARK_HOME": str(jars.parent),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        opened = [
            f"--add-opens=java.base/{package}=ALL-UNNAMED"
            for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch", "java.net")
        ]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [java, "-Xmx256m", *opened, "-cp", f"{jars}/*", *words],
                    stdout=log, stderr=log, env=environment, start_new_session=True,
                )
            )  # fmt: skip

    def _wait(self, name: str, text: str) -> None:
        path = self._directory / f"{name}.log"
        deadline = time.monotonic() + _START_S
        while text not in path.read_text(errors="replace"):
            assert time.monotonic() < deadline, path.read_text(errors="replace")[-2000:]
            assert all(process.poll() is None for process in self._processes), path.read_text()
            time.sleep(0.1)


def job(words: list[str], python: Path, log: Path) -> int:
    """Run ``barnabas spark`` with ``words``; its exit code. Workers run ``python``."""
    environment = {**_environment(), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "barnabas.console", "spark", *words]
    with log.open("wb") as told:
        return subprocess.run(
            command, stdout=told, stderr=told, env=environment, timeout=800, check=False
        ).returncode


def _environment() -> dict[str, str]:
    """Ours, without a path on which our package lies."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
