"""How many tasks a shuffle is divided into when nobody, or somebody, says so."""

from __future__ import annotations

from pyspark.sql import SparkSession

from barnabas.pipeline.jobs.spark_session.shuffle_partitions import SETTING, divide_shuffles


def test_a_shuffle_has_two_tasks_a_core_unless_somebody_says_otherwise(spark: SparkSession) -> None:
    mine = spark.newSession()
    mine.conf.unset(SETTING)

    divide_shuffles(mine)

    assert mine.conf.get(SETTING) == str(2 * spark.sparkContext.defaultParallelism) == "4"
    mine.conf.set(SETTING, "7")
    divide_shuffles(mine)
    assert mine.conf.get(SETTING) == "7"
