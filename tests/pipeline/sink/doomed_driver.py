"""A Spark driver that archives a topic and is killed at one point of its second batch.

Run as a program: bootstrap, topic, archive, checkpoint, point. Nothing of ours knows of the point:
a data source of its own name wraps the shipped writer, and kills driver and JVM from its workers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from barnabas.pipeline.frames import stream_to_archive, stream_topic
from barnabas.pipeline.session import spark_session
from barnabas.pipeline.sink.archive_files import Manifest
from barnabas.pipeline.sink.archive_writer import ArchiveOptions, ArchiveWriter, archive_options
from pyspark_barnabas import DefaultSource

POINTS = ("before write", "after write", "after manifest", "after group commit")
DOOMED_BATCH = 1
RECORDS_PER_BATCH = 20


def doomed_source(point: str, victims: Sequence[int]) -> type[DefaultSource]:
    """Our data source, but for a writer that kills these processes at ``point``."""

    class Doomed(ArchiveWriter):
        def __init__(self, options: ArchiveOptions) -> None:
            super().__init__(options)
            self._batch = -1

        def write(self, iterator: Iterator[Any]) -> Any:
            context = TaskContext.get()
            assert context is not None
            self._batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
            self._die_if(point == "before write")
            return super().write(iterator)

        def commit(
            self,
            messages: list[WriterCommitMessage | None],
            batchId: int,  # noqa: N803 - Spark's name
        ) -> None:
            self._batch = batchId
            self._die_if(point == "after write")
            super().commit(messages, batchId)
            self._die_if(point == "after group commit")

        def commit_group(self, manifest: Manifest) -> None:
            self._die_if(point == "after manifest")
            super().commit_group(manifest)

        def _die_if(self, is_here: bool) -> None:
            if is_here and self._batch == DOOMED_BATCH:
                for victim in victims:
                    os.kill(victim, signal.SIGKILL)
                os._exit(1)

    class DoomedSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "doomed"

        def streamWriter(  # noqa: N802 - Spark's name
            self, schema: Any, overwrite: bool
        ) -> DataSourceStreamWriter:
            return Doomed(archive_options(self.options))

    return DoomedSource


def main(bootstrap: str, topic: str, path: str, checkpoint: str, point: str) -> None:
    spark = spark_session(
        "doomed",
        "local[1]",
        {"spark.driver.memory": "512m", "spark.ui.enabled": "false"},
    )
    victims = [spark.sparkContext._gateway.proc.pid, os.getpid()]  # type: ignore[union-attr]

    spark.dataSource.register(doomed_source(point, victims))
    frame = stream_topic(
        spark,
        topic,
        bootstrap,
        checkpoint=checkpoint,
        start="earliest",
        options={"maxOffsetsPerTrigger": RECORDS_PER_BATCH},
    )
    writer = stream_to_archive(
        frame, path, checkpoint=checkpoint, bootstrap=bootstrap, group=f"{topic}-archive"
    )
    writer.format("doomed").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
