"""Streams run on a machine that is busy with other things.

Spark gives the Python worker of a stream ten seconds to start, a number that nothing can change;
beside ten other test runs that is sometimes not enough, and says nothing about what is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.pipeline import frames

T = TypeVar("T")

LATE = "failed to connect back"
ATTEMPTS = 5


def patiently(act: Callable[[], T]) -> T:
    """What ``act`` returns, tried again where a worker of Spark's was late."""
    for _ in range(ATTEMPTS - 1):
        try:
            return act()
        except PySparkException as failure:
            if LATE not in str(failure):
                raise
    return act()


def available_now(writer: DataStreamWriter) -> StreamingQuery:
    """Run a stream until it has done what is there now."""
    return patiently(lambda: frames.available_now(writer))
