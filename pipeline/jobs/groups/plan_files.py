"""A plan on disk: its rows as Parquet, what it is about as JSON, and what came of it.

The directory is written once, before anything is changed, so that all can be put back: ``plan/``
has every offset as it was and as it is to be. Source: docs/spec/pipeline.md §4 (undo first).
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from barnabas.client.os_errors import describe_os_error
from barnabas.pipeline.jobs.inputs import UsageProblem
from barnabas.pipeline.jobs.reports.report import replace_file

FORMAT: Final = "barnabas-plan-1"


class PlanFiles:
    """One directory, one plan."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory)

    def write(self, job: str, rows: DataFrame, about: dict[str, Any]) -> str:
        """Write a new plan, and return its id. Raises UsageProblem where there is one already."""
        if (self._root / "plan.json").exists():
            raise UsageProblem(f"{self._root} holds a plan already: name another directory")
        rows.write.mode("overwrite").parquet(str(self._root / "plan"))
        plan_id = secrets.token_hex(6)
        document = {"format": FORMAT, "job": job, "plan": plan_id, **about}
        replace_file(self._root / "plan.json", json.dumps(document, indent=1) + "\n")
        return plan_id

    def about(self, job: str) -> dict[str, Any]:
        """What the plan is about; raises UsageProblem when it is none of this job's."""
        path = self._root / "plan.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except OSError as error:
            raise UsageProblem(f"{self._root} holds no plan: {describe_os_error(error)}") from None
        except (ValueError, RecursionError):
            raise UsageProblem(f"{path} is no JSON, hence no plan") from None
        if not isinstance(found, dict):
            raise UsageProblem(f"{path} is no plan of {job}")
        if found.get("format") != FORMAT or found.get("job") != job:
            raise UsageProblem(f"{path} is no plan of {job}")
        return found

    def rows(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """The rows of the plan."""
        return spark.read.schema(schema).parquet(str(self._root / "plan"))

    def keep(self, step: str, rows: DataFrame) -> DataFrame:
        """Write what a step did, replacing what an earlier run of it wrote; read from there on."""
        path = str(self._root / step)
        rows.write.mode("overwrite").parquet(path)
        return rows.sparkSession.read.schema(rows.schema).parquet(path)
