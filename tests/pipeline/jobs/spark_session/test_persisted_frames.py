"""What a job has Spark keep is let go at its end, also when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.pipeline.jobs import lag_history, offset_audit
from barnabas.pipeline.jobs.inputs import JobSource
from barnabas.pipeline.jobs.lag_history import LagHistoryConfig
from barnabas.pipeline.jobs.offset_audit import OffsetAuditConfig
from tests.pipeline.jobs.histories import START_MS


def kept_by(spark: SparkSession) -> set[int]:
    """The numbers of what this session keeps."""
    context: Any = spark.sparkContext
    return set(context._jsc.getPersistentRDDs())


def test_a_job_that_fails_keeps_no_frames(spark: SparkSession, tmp_path: Path) -> None:
    at = f"timestamp_millis({START_MS} + id * 1000)"
    spark.range(50).selectExpr(
        "'g' `group`", "'t' topic", "0 partition", "id offset", "'' metadata",
        f"{at} commit_ts", f"{at} source_timestamp", "id source_offset",
    ).write.parquet(str(tmp_path / "commits"))  # fmt: skip
    spark.range(100).selectExpr(
        "'t' topic", "0 partition", "id offset", f"{START_MS} + id * 1000 AS ts_ms"
    ).write.parquet(str(tmp_path / "records"))
    source = JobSource(commits=str(tmp_path / "commits"), records=str(tmp_path / "records"))
    (tmp_path / "occupied").write_text("a file, where a directory is to be written")
    out = str(tmp_path / "occupied" / "out")
    before = kept_by(spark)
    with pytest.raises(Exception, match="occupied"):
        offset_audit.run(spark, OffsetAuditConfig(source=source, out=out))
    with pytest.raises(Exception, match="occupied"):
        lag_history.run(spark, LagHistoryConfig(source=source, out=out))
    assert kept_by(spark) <= before
