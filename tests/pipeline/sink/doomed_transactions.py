"""A Spark driver that copies a topic in transactions; it, or a worker of it, is killed on the way.

Run as a program: bootstrap, source, target, checkpoint, and words like ``decision:1``: a point and
the batch in which whoever is there then dies, once. Nothing of ours knows of the points: a data
source of its own name wraps the shipped writer.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from barnabas.pipeline.frames import stream_to_topic, stream_topic
from barnabas.pipeline.session import spark_session
from barnabas.pipeline.sink.topic_options import TopicSinkOptions, topic_sink_options
from barnabas.pipeline.sink.topic_writer import batch_number, task_number
from barnabas.pipeline.sink.transactional_writer import Prepared, TransactionalStreamWriter
from barnabas.pipeline.sink.transactions import Transaction
from pyspark_barnabas import DefaultSource

DRIVER_POINTS = ("before decision", "after decision", "between commits", "after commits")
WORKER_POINTS = ("before write", "while writing", "before note", "after prepare")
EXECUTOR = "executor "
"""Before a worker's point: its executor dies with it."""
RECORDS_PER_BATCH = 24
BATCH_BYTES = 200
"""So that a task has sent several batches of records before it dies while it writes."""


@dataclass(frozen=True)
class Plan:
    """Who dies when: at a driver's point driver and JVM, at a worker's the worker of task 0."""

    deaths: frozenset[tuple[str, int]]
    """Points, each with its batch."""
    victims: tuple[int, ...]
    """The processes of the driver."""
    notes: Path
    """Where a worker says that it dies, so that the next one lives."""

    def die(self, point: str, batch: int, task: int = 0) -> None:
        """Kill whoever is due."""
        has_executor = (EXECUTOR + point, batch) in self.deaths
        if not has_executor and (point, batch) not in self.deaths:
            return
        if point in DRIVER_POINTS:
            kill(*self.victims)
        note = self.notes / f"{point}-{batch}".replace(" ", "-")
        if task == 0 and not note.exists():
            note.touch()
            kill(*([executor()] if has_executor else []), os.getpid())


def kill(*victims: int) -> None:
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    os._exit(1)


def executor() -> int:
    """The JVM that started the daemon that started this worker."""
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


class Doomed(TransactionalStreamWriter):
    """The shipped writer, which comes to the points of a plan."""

    def __init__(self, options: TopicSinkOptions, plan: Plan) -> None:
        super().__init__(options)
        self._plan = plan
        self._batch = -1

    def write(self, iterator: Iterator[Any]) -> Prepared:
        batch, task = batch_number(), task_number()
        self._plan.die("before write", batch, task)
        made = super().write(self._interrupted(iterator, batch, task))
        self._plan.die("after prepare", batch, task)
        return made

    def _interrupted(self, iterator: Iterator[Any], batch: int, task: int) -> Iterator[Any]:
        for rows in iterator:
            middle = rows.num_rows // 2
            yield rows.slice(0, middle)
            self._plan.die("while writing", batch, task)
            yield rows.slice(middle)
        self._plan.die("before note", batch, task)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        self._batch = batchId
        self._plan.die("before decision", batchId)
        super().commit(messages, batchId)
        self._plan.die("after commits", batchId)

    def end(self, ended: Sequence[Transaction], *, is_commit: bool = True) -> Any:
        self._plan.die("after decision", self._batch)
        if ("between commits", self._batch) in self._plan.deaths:
            super().end(ended[:1], is_commit=is_commit)
        self._plan.die("between commits", self._batch)
        return super().end(ended, is_commit=is_commit)


def doomed_source(plan: Plan) -> type[DefaultSource]:
    """Our data source, but for its writer."""

    class DoomedSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "doomed"

        def streamWriter(  # noqa: N802 - Spark's name
            self, schema: Any, overwrite: bool
        ) -> DataSourceStreamWriter:
            writer = Doomed(topic_sink_options(self.options, is_stream=True), plan)
            writer.finish_decided()
            return writer

    return DoomedSource


def main(bootstrap: str, source: str, target: str, checkpoint: str, *words: str) -> None:
    needs_executors = any(word.startswith(EXECUTOR) for word in words)
    spark = spark_session(
        "doomed",
        "local-cluster[2,1,640]" if needs_executors else "local[2,4]",
        {
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    victims = spark.sparkContext._gateway.proc.pid, os.getpid()  # type: ignore[union-attr]
    deaths = frozenset((point, int(batch)) for point, batch in (word.split(":") for word in words))
    plan = Plan(deaths, victims, Path(checkpoint).parent)
    spark.dataSource.register(doomed_source(plan))
    frame = stream_topic(
        spark,
        source,
        bootstrap,
        checkpoint=checkpoint,
        start="earliest",
        options={"maxOffsetsPerTrigger": RECORDS_PER_BATCH},
    )
    writer = stream_to_topic(
        frame.select("key", "value", "partition"),
        bootstrap,
        target,
        checkpoint=checkpoint,
        transactional=True,
        options={"kafka.batch.size": BATCH_BYTES},
    )
    writer.format("doomed").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
