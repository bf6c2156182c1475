"""Which record of a partition comes first at or after a time, or an offset, for very many of them.

What ListOffsets answers one at a time, as one sort: times and records of a partition are cut into
slots, each slot is walked backwards keeping the smallest record seen, and what lies in later slots
is carried in. Source: users.md section 3 (lag at a time); pipeline.md section 12 (as-of join).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

PLACE: Final = ("topic", "partition")
SLOT_MS: Final = 3_600_000
SLOT_OFFSETS: Final = 1_000_000
"""How much one task's sort spans; a hot partition is divided among many."""


def first_at_time(points: DataFrame, records: DataFrame, at: str, into: str) -> DataFrame:
    """``points`` with a column ``into``: the first offset stamped ``at`` (ms) or later, or null.

    First is the smallest offset, as ListOffsets has it, where timestamps are out of order.
    ``records``: topic, partition, offset, ts_ms. Points whose ``at`` is null are lost.
    """
    found = _first(points, records, at, "ts_ms", SLOT_MS)
    return found.withColumn(into, F.col("_first.offset")).drop("_first")


def first_at_offset(points: DataFrame, records: DataFrame, at: str, into: str) -> DataFrame:
    """``points`` with a column ``into``: offset and ts_ms of the first record at ``at`` or behind.

    A struct, or null. ``records`` as above.
    """
    return _first(points, records, at, "offset", SLOT_OFFSETS).withColumnRenamed("_first", into)


def _first(points: DataFrame, records: DataFrame, at: str, by: str, span: int) -> DataFrame:
    mark = F.struct("offset", "ts_ms")
    marks = records.select(
        *PLACE, F.col(by).alias("_at"), _slot(F.col(by), span).alias("_slot"), mark.alias("_mark")
    )
    edges, carried = _carried(marks, span)
    placed = points.withColumn("_at", F.col(at)).join(F.broadcast(edges), [*PLACE], "left")
    slot = F.greatest(F.col("_low"), F.least(F.col("_high"), _slot(F.col("_at"), span)))
    asked = placed.withColumn("_slot", F.coalesce(slot, F.lit(0))).withColumn("_asks", F.lit(True))
    every = asked.drop("_low", "_high").unionByName(
        marks.unionByName(carried), allowMissingColumns=True
    )
    backwards = (
        Window.partitionBy(*PLACE, "_slot")
        .orderBy(F.col("_at").desc())
        .rangeBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        every.withColumn("_first", F.min("_mark").over(backwards))
        .where(F.col("_asks"))
        .drop("_at", "_slot", "_mark", "_asks")
    )


def _carried(marks: DataFrame, span: int) -> tuple[DataFrame, DataFrame]:
    """The slots of each partition, one free one at either end; and what each finds behind it."""
    firsts = marks.groupBy(*PLACE, "_slot").agg(F.min("_mark").alias("_mark"))
    edges = marks.groupBy(*PLACE).agg(
        (F.min("_slot") - 1).alias("_low"), (F.max("_slot") + 1).alias("_high")
    )
    slots = edges.select(*PLACE, F.explode(F.sequence("_low", "_high")).alias("_slot"))
    behind = (
        Window.partitionBy(*PLACE)
        .orderBy(F.col("_slot").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    carried = (
        slots.join(firsts, [*PLACE, "_slot"], "left")
        .withColumn("_mark", F.min("_mark").over(behind))
        .where(F.col("_mark").isNotNull())
        .withColumn("_at", (F.col("_slot") + 1) * span)
    )
    return edges, carried.select(*PLACE, "_at", "_slot", "_mark")


def _slot(at: Column, span: int) -> Column:
    return F.floor(at / F.lit(span)).cast("bigint")
