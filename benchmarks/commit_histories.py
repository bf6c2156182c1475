"""Histories of very many groups as Parquet, and lag-history and offset-audit timed over them.

    python -m benchmarks.commit_histories write DIR --groups 1000000 --commits 20
    python -m benchmarks.commit_histories run DIR --cores 2

Groups are good, slow, still, gone or go back; what is written looks like decoded commits and like
records, whatever their number, and takes a few seconds a million. Source: issue 8, item 6.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOPICS: Final = 20
PARTITIONS: Final = 50
START_MS: Final = 1_700_000_000_000
SPAN_MS: Final = 3_600_000
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


def run(directory: Path, cores: int, memory: str, window_ms: int) -> list[dict[str, Any]]:
    """Time both jobs on ``cores`` cores; rows a second are commits read."""
    from barnabas.pipeline.jobs import lag_history, offset_audit
    from barnabas.pipeline.jobs.inputs import Source
    from barnabas.pipeline.jobs.report import Report
    from barnabas.pipeline.session import spark_session

    source = Source(commits=str(directory / "commits"), records=str(directory / "records"))
    conf = {"spark.driver.memory": memory, "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(8 * cores)}  # fmt: skip
    spark = spark_session("benchmark", f"local[{cores}]", conf)
    spark.sparkContext.setLogLevel("ERROR")
    jobs: dict[str, Callable[[], Report]] = {
        "lag-history": lambda: lag_history.run(
            spark,
            lag_history.LagHistoryConfig(
                source=source, since_ms=START_MS, until_ms=START_MS + SPAN_MS, window_ms=window_ms
            ),
        ),
        "offset-audit": lambda: offset_audit.run(
            spark, offset_audit.OffsetAuditConfig(source=source)
        ),
    }
    commits = spark.read.parquet(source.commits).count()
    found = []
    for name, job in jobs.items():
        started = time.monotonic()
        report = job()
        seconds = time.monotonic() - started
        found.append(
            {"job": name, "cores": cores, "commits": commits, "seconds": round(seconds, 1),
             "commits_per_s": round(commits / seconds), "findings": report.findings,
             "jvm_peak_mb": _peak_mb(spark)}
        )  # fmt: skip
    spark.stop()
    return found


def _peak_mb(spark: Any) -> int:
    """The most memory that the driver's JVM has held; Python holds next to nothing."""
    java = spark.sparkContext._jvm  # noqa: SLF001 - pyspark has no other door to it
    pid = java.ProcessHandle.current().pid()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) // 1024


def main(words: Sequence[str] | None = None) -> None:
    """Write histories, or run the jobs over them, and print figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("write", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=20, help="of each group")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--window-ms", type=int, default=600_000)
    chosen = parser.parse_args(words)
    started = time.monotonic()
    if chosen.step == "write":
        done: Any = write(chosen.directory, chosen.groups, chosen.commits)
        done["seconds"] = round(time.monotonic() - started, 1)
        done["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    else:
        done = run(chosen.directory, chosen.cores, chosen.memory, chosen.window_ms)
    print(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
