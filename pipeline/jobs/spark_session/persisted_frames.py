"""Frames that Spark keeps while a job walks over them several times, let go however it ends.

Source: docs/spec/pipeline.md §4.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame


class PersistedFrames:
    """What one run of a job keeps: a context, at whose end everything is let go."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def persist(self, frame: DataFrame) -> DataFrame:
        """Have Spark keep the rows, in memory or on its disks, once they are first asked for."""
        self._frames.append(frame)
        return frame.persist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._frames:
            self._frames.pop().unpersist()
