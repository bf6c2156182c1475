"""Spark's drivers and workers killed while they copy in transactions: every record is there once.

Source: docs/spec/pipeline.md §2.1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.confluent_client import Confluent
from tests.harness.kafka_alone import values_shown
from tests.harness.records import Sent
from tests.pipeline.new_topics import create_topic
from tests.pipeline.open_transactions import await_none_open
from tests.pipeline.sink.doomed_transactions import (
    DRIVER_POINTS,
    EXECUTOR,
    RECORDS_PER_BATCH,
    WORKER_POINTS,
)
from tests.pipeline.slow_machine import ATTEMPTS, LATE

pytestmark = pytest.mark.nightly

DRIVER = Path(__file__).with_name("doomed_transactions.py")
ROOT = Path(__file__).parents[3]
BATCHES = 5
PARTITIONS = 2


class Copy:
    """One query that copies a topic, partition by partition, on driver after driver."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self._bootstrap, self._directory = bootstrap, directory
        self._source, self._target = topic, f"{topic}-copy"
        client = Confluent()
        for name in (self._source, self._target):
            create_topic(bootstrap, name, PARTITIONS)
        records = [
            Sent(partition=number % PARTITIONS, key=b"k%d" % (number % 7), value=b"v%d" % number)
            for number in range(BATCHES * RECORDS_PER_BATCH)
        ]
        client.produce(bootstrap, self._source, records)

    def run(self, *deaths: str) -> subprocess.CompletedProcess[str]:
        """A driver, until it has copied everything or died."""
        words = [self._bootstrap, self._source, self._target, str(self._directory / "checkpoint")]
        for attempt in range(1, ATTEMPTS + 1):
            ended = subprocess.run(
                [sys.executable, str(DRIVER), *words, *deaths],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if LATE not in ended.stderr or attempt == ATTEMPTS:
                return ended
        raise AssertionError("there is at least one attempt")

    def deaths(self) -> set[str]:
        """What workers noted before they died."""
        return {path.name for path in self._directory.glob("*-[0-9]")}

    def surplus(self) -> int:
        """Records in the log that no reader of committed ones is shown."""
        shown = sum(len(self._values(self._target, number)) for number in range(PARTITIONS))
        stored = sum(
            len(values_shown(self._bootstrap, self._target, number, "read_uncommitted"))
            for number in range(PARTITIONS)
        )
        return stored - shown

    def is_exact(self) -> bool:
        """Each record once, each partition in order."""
        pairs = [
            (self._values(self._target, number), self._values(self._source, number))
            for number in range(PARTITIONS)
        ]
        for found, expected in pairs:
            assert found == expected
        return all(found for found, _ in pairs)

    def _values(self, topic: str, partition: int) -> list[bytes]:
        await_none_open(self._bootstrap, topic, [partition])
        return values_shown(self._bootstrap, topic, partition, "read_committed")


@pytest.fixture
def copy(transactional: str, topic: str, tmp_path: Path) -> Copy:
    return Copy(transactional, topic, tmp_path)


def test_drivers_killed_at_every_point_of_a_commit_lose_and_double_nothing(copy: Copy) -> None:
    for batch, point in enumerate(DRIVER_POINTS):
        died = copy.run(f"{point}:{batch}")
        assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]

    finished = copy.run()

    assert finished.returncode == 0, finished.stderr[-2000:]
    assert copy.is_exact()
    assert copy.surplus() == RECORDS_PER_BATCH, "only the batch that was not decided came twice"


@pytest.mark.parametrize("whose", ["", EXECUTOR], ids=["worker", "executor"])
def test_tasks_killed_at_every_point_lose_and_double_nothing(copy: Copy, whose: str) -> None:
    """The worker's process alone, which its executor replaces, or the executor with it."""
    deaths = (f"{whose}{point}:{batch}" for batch, point in enumerate(WORKER_POINTS))

    finished = copy.run(*deaths)

    assert finished.returncode == 0, finished.stderr[-2000:]
    assert len(copy.deaths()) == len(WORKER_POINTS)
    assert copy.is_exact()
    assert copy.surplus() > 0, "what the dead had sent"
