"""The jobs' files as spark-submit runs them: with its own JVM, its options, and their exit codes.

Source: docs/spec/pipeline.md §5 (three faces, one implementation).
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.pipeline.jobs import launch
from tests.console.log.kafka_data import extract

START = datetime(2026, 11, 21, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("metadata", pa.string()),
        ("commit_ts", pa.timestamp("us", tz="UTC")),
        ("source_timestamp", pa.timestamp("us", tz="UTC")),
        ("source_offset", pa.int64()),
    ]
)


def submit(job: str, words: Sequence[str], log: Path) -> int:
    """Run a job's file by pyspark's spark-submit; its exit code."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [
        str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "512m",
        "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", "spark.driver.extraJavaOptions=-Xss16m -XX:TieredStopAtLevel=1",
        str(launch.module_of(job).__file__), *words,
    ]  # fmt: skip
    with log.open("wb") as told:
        return subprocess.run(
            command, stdout=told, stderr=told, env=environment, timeout=800, check=False
        ).returncode


def run_file(job: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a job's file as a script in this process, without spark-submit; its exit code."""
    path = str(launch.module_of(job).__file__)
    monkeypatch.setattr(sys, "argv", [path, *words])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(path, run_name="__main__")
    return int(left.value.code or 0)


def write_commits(directory: Path) -> Path:
    """A group that commits every 100 ms, and one that does every minute."""
    rows: list[dict[str, Any]] = [
        {"group": group, "offset": number, "at": START + number * pause}
        for group, pause in (
            ("busy", timedelta(milliseconds=100)),
            ("calm", timedelta(minutes=1)),
        )
        for number in range(50)
    ]
    table = pa.Table.from_pylist(
        [
            {"group": row["group"], "topic": "orders", "partition": 0, "offset": row["offset"],
             "metadata": "", "commit_ts": row["at"], "source_timestamp": row["at"],
             "source_offset": number}
            for number, row in enumerate(rows)
        ],
        schema=SCHEMA,
    )  # fmt: skip
    pq.write_table(table, directory / "commits.parquet")
    return directory / "commits.parquet"


def write_records(directory: Path) -> Path:
    """A record a second, of which the calm group reads one a minute."""
    at = [START + timedelta(seconds=number) for number in range(3_600)]
    table = pa.table(
        {
            "topic": ["orders"] * len(at),
            "partition": pa.array([0] * len(at), pa.int32()),
            "offset": pa.array(range(len(at)), pa.int64()),
            "timestamp": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, directory / "records.parquet")
    return directory / "records.parquet"


@pytest.mark.parametrize("job", launch.JOBS)
def test_every_file_tells_its_arguments_and_refuses_wrong_ones(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_file(job, ["--help"], monkeypatch) == 0
    assert f"usage: barnabas spark {job}" in capsys.readouterr().out
    assert run_file(job, ["--no-such-word"], monkeypatch) == 2
    assert "usage: " in capsys.readouterr().err


def test_spark_submit_runs_a_job_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    report, log = tmp_path / "report.json", tmp_path / "log"
    words = ["--commits", str(write_commits(tmp_path)), "--report", str(report), "--quiet"]
    assert submit("profile", words, log) == 1, log.read_text(errors="replace")[-3000:]
    found = json.loads(report.read_text())
    assert found["figures"] | {"commits a second": None} == {
        "groups": 2, "commits": 100, "commits a second": None, "bytes of metadata": 0
    }  # fmt: skip
    busy = found["tables"][0]["rows"][0]
    assert busy[0] == "busy"
    assert "auto.commit.interval.ms" in busy[-1]


@pytest.mark.nightly
@pytest.mark.parametrize("job", launch.JOBS)
def test_spark_submit_hands_on_the_code_of_wrong_usage_and_of_help(
    job: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert submit(job, ["--no-such-word"], log) == 2, log.read_text(errors="replace")[-3000:]
    assert "usage: " in log.read_text(errors="replace")
    assert submit(job, ["--help"], log) == 0, log.read_text(errors="replace")[-3000:]


@pytest.mark.nightly
def test_spark_submit_tells_lag_and_segments_as_the_console_does(tmp_path: Path) -> None:
    report, log = tmp_path / "report.json", tmp_path / "log"
    commits, records = write_commits(tmp_path), write_records(tmp_path)
    words = ["--commits", str(commits), "--records", str(records), "--window", "1m",
             "--groups", "calm", "--report", str(report)]  # fmt: skip
    assert submit("lag-history", words, log) in (0, 1), log.read_text(errors="replace")[-3000:]
    (table,) = json.loads(report.read_text())["tables"]
    (row,) = table["rows"]
    assert dict(zip(table["columns"], row, strict=True))["lag"] == 50 * 60 - 49  # after 50 minutes
    words = ["profile", str(extract(tmp_path)), "--report", str(report)]
    assert submit("segments", words, log) == 0, log.read_text(errors="replace")[-3000:]
    assert json.loads(report.read_text())["figures"]["bad logs"] == 0
    missing = ["verify", str(tmp_path / "nothing")]
    assert submit("segments", missing, log) == 2, log.read_text(errors="replace")[-3000:]
