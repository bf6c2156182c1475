"""Into how many tasks a shuffle is divided, where nobody said so: Spark's 200 suits few.

`session.py` says it where it makes the session; with spark-submit Spark has made its settings by
then, and only how many cores there are can be asked. Source: docs/spec/pipeline.md §5.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.shuffle.partitions"
_COMING_AND_GOING: Final = "spark.dynamicAllocation.enabled"
_TASKS_A_CORE: Final = 2
_LEAST_ON_CLUSTERS: Final = 16
"""Executors may still be on their way when a job starts; too many small tasks become one."""


def divide_shuffles(spark: SparkSession) -> None:
    """Have two tasks a core; what the user said stays, and so does 200 where executors vary."""
    context = spark.sparkContext
    settings: Any = spark.conf
    if settings.get(SETTING, None) is not None:
        return
    if (context.master or "local").startswith("local"):
        spark.conf.set(SETTING, str(_TASKS_A_CORE * context.defaultParallelism))
    elif context.getConf().get(_COMING_AND_GOING, "false") != "true":
        spark.range(1, numPartitions=1).count()  # by then executors have said how many cores
        tasks = _TASKS_A_CORE * context.defaultParallelism
        spark.conf.set(SETTING, str(max(_LEAST_ON_CLUSTERS, tasks)))
