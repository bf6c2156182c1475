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

    def __init__(self, job: str, told: TextIO | None) -> None:
        self._job = job
        self._told = told
        self._step = ""
        self._said = ""
        self._width = 0
        self._lock = threading.Lock()

    def step(self, what: str) -> None:
        """What begins now."""
        self._step = what
        self._say(what)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Look at Spark's tasks every two seconds until the block ends."""
        if self._told is None:
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
                self._told.write("\n")

    def _watch(self, spark: SparkSession, over: threading.Event) -> None:
        while not over.wait(_LOOK_EVERY_S):
            done, total = _tasks(spark)
            if total:
                self._say(f"{self._step}: {done} of {total} tasks")

    def _say(self, text: str) -> None:
        with self._lock:
            if self._told is None or text == self._said:
                return
            self._said = text
            line = f"{self._job}: {text}"
            if self._told.isatty():
                self._told.write(f"\r{line.ljust(self._width)}")
                self._width = len(line)
            else:
                self._told.write(f"{line}\n")
            self._told.flush()


def progress_on_stderr(job: str, *, quiet: bool) -> JobProgress:
    """On standard error, or nowhere."""
    return JobProgress(job, None if quiet else sys.stderr)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """Tasks done and to do in the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    known = [each for each in stages if each is not None]
    return sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
