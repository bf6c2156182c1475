"""Rows of table.py: Spark's stream and sink by our formats beside Spark's own Kafka connector.

Both read and write topics of our cluster (spark_source.py): what is compared are the formats.
"""

from __future__ import annotations

from benchmarks.table_row import WHOLE, Place, Plan, Row

RECORDS, FEW_RECORDS = 1_000_000, 100_000


def rows(plan: Plan, place: Place) -> list[Row]:
    """Seconds by the clock, everything on this machine; raises NoConnector without the jars."""
    # Only here: the other rows are measured without pyspark.
    from benchmarks import spark_source
    from benchmarks.spark_connector import connector_jars

    del place  # the cluster keeps its own directory
    jars = ",".join(map(str, connector_jars()))
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.jars": jars}
    records = RECORDS if plan == WHOLE else FEW_RECORDS
    kinds, works = (
        [spark_source.OURS, spark_source.THEIRS],
        (spark_source.STREAM, spark_source.SINK),
    )
    with spark_source.running(conf, records) as bench:
        times = spark_source.measure(bench, kinds, plan.rounds, works)
    return [
        Row(
            f"Spark, {work}, {records} records, beside Spark's connector",
            "s",
            times[work][spark_source.OURS],
            times[work][spark_source.THEIRS],
            is_cost=True,
        )
        for work in works
    ]
