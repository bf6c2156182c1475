"""Which record of a partition comes first at or after a time, or an offset, for very many of them.

What ListOffsets answers one at a time, as one sort: times and records of a partition are cut into
short slots, each slot is walked backwards keeping the smallest record seen, and what lies in later
slots is carried in. Source: docs/spec/users.md §3 (lag at a time); docs/spec/pipeline.md §4
(as-of).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from barnabas.client.cluster import TopicPartition

TOPIC_PARTITION: Final = ("topic", "partition")
RECORDS_PER_place: Final = 64
"""How many records a slot has on average: few are sorted fast, and each slot costs a row itself."""
_NUMBERS: Final = (
    "topic string, partition int, partition_number int, log_start bigint, log_end bigint, "
    "time_base bigint, time_low bigint, time_high bigint, "
    "offset_base bigint, offset_low bigint, offset_high bigint"
)
_NO_TIME: Final = -1

Edges = Mapping[TopicPartition, tuple[int, int]]
"""Where the log of a topic's partition starts and ends."""


@dataclass(frozen=True, slots=True)
class Logs:
    """Partitions with their records, numbered: a number sorts and travels better than a name.

    ``partitions``: _NUMBERS, one row a partition. ``records``: partition_number, offset, ts_ms
    (-1 for none).
    """

    partitions: DataFrame
    records: DataFrame
    count: int
    """How many partitions there are."""
    time_span: int
    offset_span: int
    """The lengths of slots, in ms and in offsets."""

    @property
    def edges(self) -> DataFrame:
        """partition_number, log_start, log_end; small, to be joined by broadcast."""
        return F.broadcast(self.partitions.select("partition_number", "log_start", "log_end"))

    def with_numbers(self, frame: DataFrame) -> DataFrame:
        """``frame`` with ``partition_number`` for topic and partition, without other rows."""
        numbers = F.broadcast(self.partitions.select(*TOPIC_PARTITION, "partition_number"))
        return frame.join(numbers, [*TOPIC_PARTITION]).drop(*TOPIC_PARTITION)

    def first_at_time(self, points: DataFrame, at: str, into: str) -> DataFrame:
        """``points`` with ``into``: the first offset stamped ``at`` (ms) or later, or null.

        First is the smallest offset, as ListOffsets has it, where timestamps are out of order.
        ``points`` have a ``partition_number``.
        """
        found = self._first(points, "time", F.col(at), F.col("ts_ms"), self.time_span)
        return found.withColumnRenamed("_offset", into).drop("_ts_ms")

    def first_at_offset(self, points: DataFrame, at: str, into: str) -> DataFrame:
        """``points`` with ``into`` and ``into_ms``: the first record at ``at`` or later."""
        found = self._first(points, "offset", F.col(at), F.col("offset"), self.offset_span)
        return found.withColumnsRenamed({"_offset": into, "_ts_ms": f"{into}_ms"})

    def first_at_steps(self, first_ms: int, step_ms: int, count: int, into: str) -> DataFrame:
        """partition_number, step and ``into``: :meth:`first_at_time` of ``count`` times.

        They are ``step_ms`` apart.
        """
        number = F.floor((F.col("ts_ms") - first_ms) / F.lit(step_ms)).cast("bigint")
        cells = (
            self.records.where(F.col("ts_ms") >= first_ms)
            .groupBy("partition_number", F.least(number, F.lit(count - 1)).alias("step"))
            .agg(F.min("offset").alias("_offset"))
        )
        numbers = F.sequence(F.lit(0).cast("bigint"), F.lit(count - 1).cast("bigint"))
        every = self.partitions.select("partition_number", F.explode(numbers).alias("step"))
        behind = Window.partitionBy("partition_number").orderBy(F.col("step").desc())
        return every.join(cells, ["partition_number", "step"], "left").select(
            "partition_number", "step", F.min("_offset").over(behind).alias(into)
        )

    def _first(
        self, points: DataFrame, kind: str, at: Column, record_at: Column, span: int
    ) -> DataFrame:
        slots = F.broadcast(
            self.partitions.select(
                "partition_number",
                *(F.col(f"{kind}_{name}").alias(name) for name in ("base", "low", "high")),
            )
        )
        asked = _in_slots(points, slots, at, span).withColumn("_asks", F.lit(True))
        marks = _in_slots(self.records, slots, record_at, span).select(
            "_at", "_bucket", F.col("offset").alias("_offset"), F.col("ts_ms").alias("_ts_ms")
        )
        every = asked.unionByName(marks, allowMissingColumns=True).unionByName(
            _carried(marks, slots, span), allowMissingColumns=True
        )
        backwards = (
            Window.partitionBy("_bucket")
            .orderBy(F.col("_at").desc())
            .rangeBetween(Window.unboundedPreceding, Window.currentRow)
        )
        found = {"_offset": F.min("_offset").over(backwards)}
        if kind == "offset":  # walked down the offsets, the smallest is the one seen last
            found["_ts_ms"] = F.last("_ts_ms", ignorenulls=True).over(backwards)
        return every.withColumns(found).where(F.col("_asks")).drop("_at", "_bucket", "_asks")


def logs_of(records: DataFrame, edges: Edges | None) -> Logs:
    """Number the partitions of ``edges``; None takes them from the records.

    ``records``: topic, partition, offset, ts_ms. They are walked once, and a row a partition
    comes here.
    """
    spark = records.sparkSession
    records = records.withColumn("ts_ms", F.coalesce("ts_ms", F.lit(_NO_TIME)))
    known = {
        TopicPartition(row.topic, row.partition): row
        for row in records.groupBy(*TOPIC_PARTITION)
        .agg(
            F.count("*").alias("records"),
            *(
                aggregate(name).alias(f"{prefix}_{name}")
                for name in ("offset", "ts_ms")
                for prefix, aggregate in (("min", F.min), ("max", F.max))
            ),
        )
        .collect()
    }
    if edges is None:
        edges = {
            topic_partition: (row.min_offset, row.max_offset + 1)
            for topic_partition, row in known.items()
        }
    slots = sum(row.records for row in known.values()) // RECORDS_PER_place + 1
    time_span, offset_span = (
        max(1, -(-sum(row[f"max_{by}"] - row[f"min_{by}"] for row in known.values()) // slots))
        for by in ("ts_ms", "offset")
    )
    partitions = spark.createDataFrame(
        list(_numbered(edges, known, time_span, offset_span)), _NUMBERS
    )
    numbers = F.broadcast(partitions.select(*TOPIC_PARTITION, "partition_number"))
    numbered = records.join(numbers, [*TOPIC_PARTITION]).select(
        "partition_number", "offset", "ts_ms"
    )
    return Logs(partitions, numbered, len(edges), time_span, offset_span)


def _numbered(
    edges: Edges, known: Mapping[TopicPartition, Any], time_span: int, offset_span: int
) -> Iterator[tuple[Any, ...]]:
    time_base = offset_base = 0
    for number, (topic_partition, (log_start, log_end)) in enumerate(sorted(edges.items())):
        row = known.get(topic_partition)
        times = _slots(row, "ts_ms", time_span)
        offsets = _slots(row, "offset", offset_span)
        yield (
            *topic_partition,
            number,
            log_start,
            log_end,
            time_base,
            *times,
            offset_base,
            *offsets,
        )
        time_base += times[1] - times[0] + 1
        offset_base += offsets[1] - offsets[0] + 1


def _slots(row: Any, by: str, span: int) -> tuple[int, int]:
    """The first and last slot of a partition; one that is free lies at either end."""
    if row is None:
        return 0, 0
    return int(row[f"min_{by}"] // span - 1), int(row[f"max_{by}"] // span + 1)


def _in_slots(frame: DataFrame, slots: DataFrame, at: Column, span: int) -> DataFrame:
    """With ``_at`` and ``_bucket``, the number of a slot among those of all partitions."""
    slot = F.greatest(F.col("low"), F.least(F.col("high"), F.floor(at / F.lit(span))))
    return (
        frame.join(slots, "partition_number")
        .withColumn("_at", at.cast("bigint"))
        .withColumn("_bucket", (F.col("base") + slot - F.col("low")).cast("bigint"))
        .drop("base", "low", "high")
    )


def _carried(marks: DataFrame, slots: DataFrame, span: int) -> DataFrame:
    """What each slot finds behind it, as a record at its end."""
    firsts = marks.groupBy("_bucket").agg(
        F.min("_offset").alias("_offset"), F.min_by("_ts_ms", "_offset").alias("_ts_ms")
    )
    every = slots.select(
        "partition_number", "base", "low", F.explode(F.sequence("low", "high")).alias("_slot")
    ).withColumn("_bucket", F.col("base") + F.col("_slot") - F.col("low"))
    behind = (
        Window.partitionBy("partition_number")
        .orderBy(F.col("_slot").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    first = F.when(F.col("_offset").isNotNull(), F.struct("_offset", "_ts_ms"))
    return (
        every.join(firsts, "_bucket", "left")
        .withColumn("_first", F.min(first).over(behind))
        .where(F.col("_first").isNotNull())
        .select(((F.col("_slot") + 1) * span).alias("_at"), "_bucket", "_first.*")
    )
