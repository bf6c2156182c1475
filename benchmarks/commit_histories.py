"""Histories of very many groups as Parquet, and lag-history and offset-audit timed over them.

    python -m benchmarks.commit_histories write DIR --groups 1000000 --commits 20
    python -m benchmarks.commit_histories run DIR --job lag-history --groups 100000 --cores 2

Groups are good, slow, still, gone or go back; what is written looks like decoded commits and like
records, and takes a few seconds a million. A run looks at the first groups of it, with all 7.2 M
records, and says what time, CPU and memory it took.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.process_tree import process_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipeline.jobs.reports.report import Report

TOPICS: Final = 20
PARTITIONS: Final = 50
START_MS: Final = 1_700_000_000_000
SPAN_MS: Final = 3_600_000
WINDOW_MS: Final = 600_000
RECORD_EVERY_MS: Final = 500
_GROUPS_AT_ONCE: Final = 50_000
_US: Final = pa.timestamp("us", tz="UTC")


def write(directory: Path, groups: int, commits: int) -> dict[str, Any]:
    """``commits`` commits of each group in one partition, over an hour; and the records of it."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    per_partition = SPAN_MS // RECORD_EVERY_MS
    _write_records(directory / "records", per_partition)
    folder = directory / "commits"
    folder.mkdir(exist_ok=True)
    for number, first in enumerate(range(0, groups, _GROUPS_AT_ONCE)):
        count = min(_GROUPS_AT_ONCE, groups - first)
        table = _commits(random, first, count, commits, per_partition)
        pq.write_table(table, folder / f"{number:05}.parquet", compression="zstd")
    size = sum(path.stat().st_size for path in directory.rglob("*.parquet"))
    return {"groups": groups, "commits": groups * commits, "bytes": size}


def _write_records(folder: Path, per_partition: int) -> None:
    folder.mkdir(exist_ok=True)
    offsets = np.arange(per_partition, dtype=np.int64)
    for topic in range(TOPICS):
        tables = [
            pa.table(
                {
                    "topic": pa.repeat(f"topic-{topic}", per_partition),
                    "partition": pa.repeat(pa.scalar(partition, pa.int32()), per_partition),
                    "offset": offsets,
                    "ts_ms": START_MS + offsets * RECORD_EVERY_MS,
                }
            )
            for partition in range(PARTITIONS)
        ]
        pq.write_table(pa.concat_tables(tables), folder / f"{topic:05}.parquet")


def _commits(
    random: np.random.Generator, first: int, count: int, commits: int, end: int
) -> pa.Table:
    """One row group: ``count`` groups, each with a temper of its own."""
    at = np.sort(random.integers(0, SPAN_MS, (count, commits)), axis=1)
    log_end = at // RECORD_EVERY_MS
    temper = random.integers(0, 5, count)[:, None]
    lagging = (log_end * 0.9).astype(np.int64)
    offset = np.where(temper == 0, log_end, lagging)
    offset = np.where(temper == 1, log_end[:, :1], offset)
    back = (np.arange(commits) == commits // 2)[None, :] & (temper == 2)
    offset = np.where(back, offset // 2, offset)
    gone = (np.arange(commits) > commits // 2)[None, :] & (temper == 3)
    at = np.where(gone, at[:, commits // 2][:, None], at)
    numbers = np.repeat(np.arange(first, first + count), commits)
    stamps = pa.array((START_MS + at.ravel()) * 1000, pa.int64()).cast(_US)
    rows = count * commits
    return pa.table(
        {
            "group": pa.array(np.char.add("group-", numbers.astype(str))),
            "topic": pa.array(np.char.add("topic-", (numbers % TOPICS).astype(str))),
            "partition": pa.array((numbers // TOPICS % PARTITIONS).astype(np.int32)),
            "offset": pa.array(np.minimum(offset, end).ravel()),
            "metadata": pa.repeat("", rows),
            "commit_ts": stamps,
            "source_offset": pa.array(np.arange(rows, dtype=np.int64) + first * commits),
            "source_timestamp": stamps,
        }
    )


def run(directory: Path, job: str, groups: int, cores: int, memory: str) -> dict[str, Any]:
    """One job over the first ``groups`` groups: time, CPU and memory of all its processes."""
    from barnabas.pipeline.session import spark_session

    parts = [f"{number:05}" for number in range(-(-groups // _GROUPS_AT_ONCE))]
    commits = f"{directory}/commits/{{{','.join(parts)}}}.parquet"
    conf = {"spark.driver.memory": memory, "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(8 * cores)}  # fmt: skip
    spark = spark_session("benchmark", f"local[{cores}]", conf)
    spark.sparkContext.setLogLevel("ERROR")
    counts = [spark.read.parquet(path).count() for path in (commits, f"{directory}/records")]
    load = os.getloadavg()[0]
    before, started = ProcessCosts.now(), time.monotonic()
    report = _job(spark, job, commits, f"{directory}/records")
    seconds, after = time.monotonic() - started, ProcessCosts.now()
    spark.stop()
    cpu_s = after.cpu_s - before.cpu_s
    return {
        "job": job, "cores": cores, "commits": counts[0], "records": counts[1],
        "seconds": round(seconds, 1), "commits_per_s": round(counts[0] / seconds),
        "cpu_s": round(cpu_s, 1), "us_per_commit": round(1e6 * cpu_s / counts[0], 1),
        "heap": memory, "jvm_peak_mb": after.jvm_mb, "python_peak_mb": after.python_mb,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)], "findings": report.findings,
    }  # fmt: skip


def _job(spark: SparkSession, job: str, commits: str, records: str) -> Report:
    from barnabas.pipeline.jobs import lag_history, offset_audit
    from barnabas.pipeline.jobs.inputs import JobSource

    source = JobSource(commits=commits, records=records)
    if job == "offset-audit":
        return offset_audit.run(spark, offset_audit.OffsetAuditConfig(source=source))
    until = START_MS + SPAN_MS
    config = lag_history.LagHistoryConfig(
        source=source, since_ms=START_MS, until_ms=until, window_ms=WINDOW_MS
    )
    return lag_history.run(spark, config)


@dataclass(frozen=True, slots=True)
class ProcessCosts:
    """This process and all that it started: Spark's JVM, and the workers in Python."""

    cpu_s: float
    jvm_mb: int
    python_mb: int
    """The most each has held, those of Python together; of processes that are still there."""

    @classmethod
    def now(cls) -> Self:
        """What they took until now."""
        cpu_s, peaks = 0.0, {True: 0, False: 0}
        for process in process_tree():
            cpu_s += sum(map(int, process.words[11:15])) / os.sysconf("SC_CLK_TCK")
            peaks[process.name == "java"] += _peak_mb(process.folder / "status")
        return cls(cpu_s, peaks[True], peaks[False])


def _peak_mb(status: Path) -> int:
    """0 for a process that has ended meanwhile, or that nobody has waited for yet."""
    with contextlib.suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024
    return 0


def main(words: Sequence[str] | None = None) -> None:
    """Write histories, or run a job over them, and print figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("write", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=20, help="of each group, when writing")
    parser.add_argument("--job", choices=("lag-history", "offset-audit"), default="lag-history")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="heap of Spark's JVM")
    chosen = parser.parse_args(words)
    started = time.monotonic()
    if chosen.step == "write":
        done = write(chosen.directory, chosen.groups, chosen.commits)
        done["seconds"] = round(time.monotonic() - started, 1)
    else:
        done = run(chosen.directory, chosen.job, chosen.groups, chosen.cores, chosen.memory)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
