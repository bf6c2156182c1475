"""A batch on Spark: orders are read as a frame, counted, and the counts written to a topic.

    pip install '.[spark]'          # in a checkout; brings pyspark, some 500 MB
    python examples/produce.py
    python examples/spark_batch.py

Spark's words are the same as with its Kafka connector: `spark.read.format("barnabas")` takes the
same options. No jar is needed.
"""

from __future__ import annotations

import os

from pyspark.sql import functions as f

from barnabas.pipeline.frames import read_topic, write_topic
from barnabas.pipeline.session import spark_session

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")


def main() -> None:
    """Count orders by guest."""
    # A session with Java, the workers' Python and defaults set; your own works as well.
    spark = spark_session()
    spark.sparkContext.setLogLevel("ERROR")
    # Partitions are read by tasks of their own, side by side.
    orders = read_topic(spark, "orders", BOOTSTRAP)
    counts = (
        orders.groupBy(f.col("key").cast("string").alias("guest"))
        .agg(f.count("*").alias("orders"), f.max("timestamp").alias("latest"))
        .cache()  # it is used twice: shown, and written
    )
    counts.show(truncate=False)
    # A record needs a key and a value: the guest, and the rest as JSON.
    records = counts.select(
        f.col("guest").alias("key"), f.to_json(f.struct("orders", "latest")).alias("value")
    )
    write_topic(records, BOOTSTRAP, "orders-by-guest")


if __name__ == "__main__":
    main()
