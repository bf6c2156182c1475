"""reset: move many groups to a time or an offset at once, by a plan that can be undone.

Run by ``barnabas spark reset plan|apply|undo``, by ``spark-submit`` with this file, or by
:func:`run`. Groups with members are listed and left alone. Source: docs/spec/pipeline.md §4, job 4.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from barnabas.client.admin.bulk_group_admin import Codes, GroupStatus, Offsets
from barnabas.client.admin.descriptions import Committed
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.os_errors import describe_os_error
from barnabas.pipeline.cluster_requests import offsets_at
from barnabas.pipeline.jobs import inputs, time_arguments
from barnabas.pipeline.jobs.groups.group_tasks import (
    Chunk,
    Row,
    TaskClientConfig,
    TaskClients,
    for_each_group,
    why,
)
from barnabas.pipeline.jobs.groups.plan_files import PlanFiles
from barnabas.pipeline.jobs.reports.job_progress import JobProgress, progress_on_stderr
from barnabas.pipeline.jobs.reports.report import Report, Table
from barnabas.protocol.audit_topic import tool_client_id
from barnabas.protocol.errors import ErrorCode

NAME: Final = "reset"
STEPS: Final = ("plan", "apply", "undo")
LATEST: Final = -1
EARLIEST: Final = -2
_TASKS: Final = 8

SCHEMA: Final = (
    StructType()
    .add("group", StringType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("old", LongType())
    .add("old_epoch", IntegerType())
    .add("old_metadata", StringType())
    .add("new", LongType())
    .add("clamped", StringType())
    .add("applied", StringType())
    .add("error", StringType())
)
"""``applied``: planned, done, already, undone, moved, skipped or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResetConfig:
    """A step, and where its plan lies. How far to go concerns the step ``plan`` only."""

    step: str
    plan: str
    source: inputs.JobSource = field(default_factory=inputs.JobSource)
    to_ms: int | None = None
    """A time in ms, or EARLIEST, or LATEST; None with ``shift``."""
    shift: int | None = None
    names: Sequence[str] = ()
    """Groups by name, besides the pattern of the source; empty for all that match."""
    reason: str = ""
    tasks: int = _TASKS
    limit: int = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the job can be told."""
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("plan", metavar="DIR", help="where the plan is, or is to be")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--to-time", type=time_arguments.time_ms, metavar="TIME", help="records of then on"
    )
    way.add_argument("--to-earliest", action="store_true", help="the first record still kept")
    way.add_argument("--to-latest", action="store_true", help="only what comes from now on")
    way.add_argument("--shift-by", type=int, metavar="N", help="so many on, or back if negative")
    parser.add_argument("--groups-file", type=Path, metavar="FILE", help="names, one a line")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the groups' history")
    parser.add_argument("--tasks", type=int, default=_TASKS, metavar="N", help="so many at once")
    inputs.add_patterns(parser)
    inputs.add_cluster_arguments(parser)


def configured(chosen: argparse.Namespace) -> BulkResetConfig:
    """What was typed; raises UsageProblem."""
    to_ms = chosen.to_time
    if chosen.to_earliest or chosen.to_latest:
        to_ms = EARLIEST if chosen.to_earliest else LATEST
    if chosen.step == "plan" and to_ms is None and chosen.shift_by is None:
        raise inputs.UsageProblem("say --to-time, --to-earliest, --to-latest or --shift-by")
    names: list[str] = []
    if chosen.groups_file:
        try:
            text = chosen.groups_file.read_text(encoding="utf-8")
        except OSError as error:
            raise inputs.UsageProblem(describe_os_error(error)) from None
        except UnicodeDecodeError:
            raise inputs.UsageProblem(f"{chosen.groups_file} is no text in UTF-8") from None
        names = [line.strip() for line in text.splitlines()]
    if chosen.step == "plan" and not (any(names) or chosen.groups):
        raise inputs.UsageProblem("say --groups RE or --groups-file FILE; '.*' means all groups")
    return BulkResetConfig(
        step=chosen.step,
        plan=chosen.plan,
        source=inputs.source_of(chosen),
        to_ms=to_ms,
        shift=chosen.shift_by,
        names=[name for name in names if name],
        reason=chosen.reason,
        tasks=chosen.tasks,
        limit=chosen.limit,
    )


def run(
    spark: SparkSession, config: BulkResetConfig, progress: JobProgress | None = None
) -> Report:
    """Do one step. Findings are offsets that could not be planned, set or put back."""
    progress = progress or progress_on_stderr(NAME, quiet=True)
    progress.step(config.step)
    files = PlanFiles(config.plan)
    if config.step == "plan":
        planned = _planned(spark, config).persist()
        about = {"time_ms": time.time_ns() // 1_000_000, "reason": config.reason}
        files.write(NAME, planned, about)
        return _report(config, planned)
    found = files.about(NAME)
    reason = f"{NAME} {config.step}: {found.get('reason') or 'no reason given'}"
    client_config = TaskClientConfig(
        address=config.source.address, client_id=tool_client_id(found["plan"], reason)
    )
    rows = files.rows(spark, SCHEMA)
    work = _apply if config.step == "apply" else _undo
    done = for_each_group(rows, client_config, work, SCHEMA, config.tasks)
    return _report(config, files.keep("applied" if config.step == "apply" else "undone", done))


def _planned(spark: SparkSession, config: BulkResetConfig) -> DataFrame:
    groups = _groups(config)
    named = spark.createDataFrame([(group,) for group in groups], "`group` string")
    client_config = TaskClientConfig(address=config.source.address)
    topics = config.source.topics
    now = for_each_group(named, client_config, _ReadOffsets(topics), SCHEMA, config.tasks).persist()
    topic_partitions = [
        TopicPartition(row.topic, row.partition)
        for row in now.select("topic", "partition").where(F.col("topic").isNotNull()).distinct()
        .collect()
    ]  # fmt: skip
    edges, targets = _targets(config, topic_partitions)
    table = spark.createDataFrame(
        [
            (*topic_partition, *edges[topic_partition], targets.get(topic_partition))
            for topic_partition in topic_partitions
            if topic_partition in edges
        ],
        "topic string, partition int, log_start bigint, log_end bigint, target bigint",
    )
    wanted = F.col("target") if config.shift is None else F.col("old") + config.shift
    joined = now.join(F.broadcast(table), ["topic", "partition"], "left")
    new = F.greatest(F.col("log_start"), F.least(F.col("log_end"), wanted))
    is_free = F.col("error").isNull()
    return (
        joined.withColumn("new", F.when(is_free & F.col("log_end").isNotNull(), new))
        .withColumn("clamped", F.when(F.col("new") != wanted, F.concat(
            F.lit("asked for "), wanted.cast("string"))))
        .withColumn("error", F.when(is_free & F.col("log_end").isNull() & F.col("topic")
            .isNotNull(), F.lit("the topic is gone")).otherwise(F.col("error")))
        .withColumn("applied", F.when(F.col("error").isNull(), "planned").otherwise("skipped"))
        .select(*SCHEMA.names)
    )  # fmt: skip


def _groups(config: BulkResetConfig) -> list[str]:
    async def ask() -> list[str]:
        from barnabas.client.admin.admin import Admin

        return [
            listing.group for listing in await Admin(config.source.client.cluster).list_groups()
        ]

    pattern = re.compile(config.source.groups)
    found = [name for name in config.source.client.run(ask()) if pattern.search(name)]
    if not config.names:
        return sorted(found)
    return sorted(set(config.names) if not config.source.groups else {*config.names} & {*found})


def _targets(
    config: BulkResetConfig, topic_partitions: Sequence[TopicPartition]
) -> tuple[Mapping[TopicPartition, tuple[int, int]], Mapping[TopicPartition, int]]:
    """Edges of the logs, and where the time leads: every partition is asked for once."""
    topics = inputs.existing_topics(
        config.source, sorted({topic_partition.topic for topic_partition in topic_partitions})
    )
    edges = inputs.log_edges(config.source, topics)
    known = [topic_partition for topic_partition in topic_partitions if topic_partition in edges]
    if config.to_ms is None:
        return edges, {}
    client = config.source.client
    found = client.run(offsets_at(client.cluster, dict.fromkeys(known, config.to_ms)))
    return edges, {
        topic_partition: edges[topic_partition][1] if at < 0 else at
        for topic_partition, at in found.items()
    }


class _ReadOffsets:
    """What a group has committed, of topics wanted; one row without a topic for an active group."""

    def __init__(self, topics: str) -> None:
        self._topics = topics

    async def __call__(self, clients: TaskClients, chunk: Chunk) -> list[Row]:
        states = await clients.groups.states(chunk)
        committed = await clients.groups.committed(chunk, is_stable=True)
        return [
            row for group in chunk for row in self._rows(group, states[group], committed[group])
        ]

    def _rows(
        self, group: str, state: GroupStatus | KafkaError, committed: Offsets | KafkaError
    ) -> list[Row]:
        for failure in (state, committed):
            if isinstance(failure, KafkaError):
                return [_row(group, applied="skipped", error=why(failure))]
        assert isinstance(state, GroupStatus), "checked above"
        assert not isinstance(committed, KafkaError), "checked above"
        activity = state.activity()
        if activity is not None or not committed:
            error = f"active: {activity}" if activity else "it has committed nothing"
            return [_row(group, applied="skipped", error=error)]
        wanted = re.compile(self._topics)
        return [
            _row(
                group,
                topic=topic,
                partition=partition,
                old=commit.offset,
                old_epoch=commit.leader_epoch,
                old_metadata=commit.metadata,
            )
            for (topic, partition), commit in sorted(committed.items())
            if wanted.search(topic)
        ]


async def _apply(clients: TaskClients, chunk: Chunk) -> list[Row]:
    """Set what the plan says; an offset that is no longer as planned is left alone."""
    return await _moved(clients, chunk, expected="old", target=_planned_offset, done_state="done")


async def _undo(clients: TaskClients, chunk: Chunk) -> list[Row]:
    """Put back what was there; an offset that has moved on since is left alone."""
    return await _moved(clients, chunk, expected="new", target=_old_offset, done_state="undone")


async def _moved(
    clients: TaskClients,
    chunk: Chunk,
    *,
    expected: str,
    target: Callable[[Row], Committed],
    done_state: str,
) -> list[Row]:
    """Commit ``target(row)`` where ``row[expected]`` is what is committed; tell each outcome."""
    rows = [row for its in chunk.values() for row in its]
    wanted = [row for row in rows if row["new"] is not None and row["error"] is None]
    # What an open transaction holds is left alone: whichever came last would win without a word.
    named = {row["group"]: None for row in wanted}
    now = await clients.groups.committed(named, is_stable=True)
    due = [row for row in wanted if _is_due(row, now[row["group"]], expected, target(row).offset)]
    changes: dict[str, dict[TopicPartition, Committed]] = defaultdict(dict)
    for row in due:
        changes[row["group"]][_topic_partition(row)] = target(row)
    codes = await clients.groups.commit(changes)
    after = await clients.groups.committed(changes)
    for row in due:
        error = _problem(
            codes[row["group"]], after[row["group"]], _topic_partition(row), target(row).offset
        )
        row["applied"], row["error"] = done_state if error is None else "failed", error
    return rows


def _is_due(row: Row, now: Offsets | KafkaError, expected: str, target: int) -> bool:
    """Whether the offset is still to be committed; the row is told what else it is."""
    if isinstance(now, KafkaError):
        row["applied"], row["error"] = "failed", why(now)
        return False
    found = now.get(_topic_partition(row))
    at = None if found is None else found.offset
    if at == target:
        row["applied"] = "already"
    elif at != row[expected]:
        row["applied"], row["error"] = "moved", f"it is at {at}, not {row[expected]}"
    else:
        return True
    return False


def _problem(
    codes: Codes | KafkaError,
    after: Offsets | KafkaError,
    topic_partition: TopicPartition,
    target: int,
) -> str | None:
    """Why an offset was not set, from what was answered and from what is committed now."""
    for failure in (codes, after):
        if isinstance(failure, KafkaError):
            return why(failure)
    assert not isinstance(codes, KafkaError), "checked above"
    assert not isinstance(after, KafkaError), "checked above"
    code = codes.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    found = after.get(topic_partition)
    return None if not code and found is not None and found.offset == target else code.name


def _topic_partition(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _planned_offset(row: Row) -> Committed:
    return Committed(offset=row["new"], metadata=row["old_metadata"] or "", leader_epoch=-1)


def _old_offset(row: Row) -> Committed:
    return Committed(
        offset=row["old"], metadata=row["old_metadata"] or "", leader_epoch=row["old_epoch"]
    )


def _row(group: str, **found: Any) -> Row:
    return {**dict.fromkeys(SCHEMA.names), "group": group, "applied": "planned", **found}


def _report(config: BulkResetConfig, rows: DataFrame) -> Report:
    report = Report(job=f"{NAME} {config.step}")
    counts = {row.applied: row["count"] for row in rows.groupBy("applied").count().collect()}
    report.figures["groups"] = rows.select("group").distinct().count()
    report.figures |= {name: counts[name] for name in sorted(counts)}
    report.findings = sum(counts.get(name, 0) for name in ("skipped", "moved", "failed"))
    delta = F.col("new") - F.col("old")
    order = [F.col("error").isNull(), F.col("group"), F.col("topic"), F.col("partition")]
    columns = ["group", "topic", "partition", "old", "new", "delta", "clamped", "applied", "error"]
    shown = rows.withColumn("delta", delta).orderBy(*order).limit(config.limit)
    found = [list(row) for row in shown.select(*columns).collect()]
    report.tables.append(Table("Offsets", columns, found, rows.count()))
    report.notes.append(f"The plan and what came of it are in {config.plan}.")
    return report


if __name__ == "__main__":
    from barnabas.pipeline.jobs.launch import main

    sys.exit(main(NAME))
