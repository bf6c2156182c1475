"""What a job says while it runs: what it is doing, and how many of Spark's tasks are done.

To standard error, so that output can be piped; on a terminal one line that changes, elsewhere a
line only when something has moved. Source: docs/spec/pipeline.md §4 (progress).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from pyspark.sql import SparkSession

_LOOK_EVERY_S: Final = 2.0


class JobProgress:
    """Tells one job's steps; ``told`` None is silent."""

    def __init__(self, job: str, stream: TextIO | None) -> None:
        self._job = job
        self._stream = stream
        self._step = ""
        self._last_text = ""
        self._width = 0
        self._lock = threading.Lock()

    def step(self, what: str) -> None:
        """What begins now."""
        self._step = what
        self._write(what)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Look at Spark's tasks every two seconds until the block ends."""
        if self._stream is None:
            yield
            return
        over = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(spark, over), name="job-progress", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            if self._width:
                self._stream.write("\n")

    def _watch(self, spark: SparkSession, over: threading.Event) -> None:
        while not over.wait(_LOOK_EVERY_S):
            done, total = _tasks(spark)
            if total:
                self._write(f"{self._step}: {done} of {total} tasks")

    def _write(self, text: str) -> None:
        with self._lock:
            if self._stream is None or text == self._last_text:
                return
            self._last_text = text
            line = f"{self._job}: {text}"
            if self._stream.isatty():
                self._stream.write(f"\r{line.ljust(self._width)}")
                self._width = len(line)
            else:
                self._stream.write(f"{line}\n")
            self._stream.flush()


def progress_on_stderr(job: str, *, quiet: bool) -> JobProgress:
    """On standard error, or nowhere."""
    return JobProgress(job, None if quiet else sys.stderr)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """Tasks done and to do in the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
