"""A source connector of Kafka Connect writes each line of a file once, through kills of its worker.

Distributed workers with ``exactly.once.source.support`` (KIP-618): each batch is a transaction with
the connector's offset in it, and a successor fences the one that is gone by its transactional id.
BARNABAS_INTEROP_SERVER=kafka runs it against Apache Kafka, which must pass it as well.
Source: docs/spec/transactions.md §2, §4 and §9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.harness.confluent_client import Confluent
from tests.harness.connect_worker import ConnectWorker
from tests.harness.deployments import Deployment, create_topic
from tests.harness.waiting import eventually
from tests.interop.test_streams_exactly_once import committed

PORTION: Final = 4_000
BATCH: Final = 50
"""Lines in a transaction."""
KILLS: Final = 3
STEP_S: Final = 180.0

StartWorker = Callable[[], ConnectWorker]


@pytest.fixture
def start_worker(cluster: Deployment, group: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers of one group; they end with the test."""
    started: list[ConnectWorker] = []

    def start() -> ConnectWorker:
        place = tmp_path / f"worker-{len(started)}"
        started.append(ConnectWorker(cluster.bootstrap, group, place))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


class Copied:
    """The file, and what readers of committed records find of it."""

    def __init__(self, cluster: Deployment, topic: str, file: Path) -> None:
        self._cluster = cluster
        self._topic = topic
        self._file = file
        self._written = 0

    def write(self, count: int = PORTION) -> None:
        """Have more lines to be copied."""
        numbers = range(self._written, self._written + count)
        with self._file.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)
        self._written += count

    @property
    def lines(self) -> list[bytes]:
        """All of them."""
        return [b"%d" % number for number in range(self._written)]

    def committed(self) -> list[bytes]:
        """What is in the topic by now."""
        return committed(self._cluster, self._topic, 0)

    def await_more_than(self, count: int) -> None:
        eventually(lambda: self._count() > count, within_s=STEP_S, what=f"more than {count} lines")

    def await_all(self) -> None:
        """Return when all lines of now are there.

        The connector hands out what it has read only while there is more to be read.
        """
        count = self._written

        def are_there() -> bool:
            self.write(1)
            return self._count() >= count

        eventually(are_there, within_s=STEP_S, what=f"{count} lines")

    def _count(self) -> int:
        return len(self.committed())


def connector(topic: str, file: Path) -> dict[str, str]:
    """Refused by a worker that cannot write exactly once."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "batch.size": str(BATCH),
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }


@pytest.mark.nightly
def test_a_source_connector_writes_each_line_once_though_its_workers_are_killed(
    cluster: Deployment, topic: str, tmp_path: Path, start_worker: StartWorker
) -> None:
    create_topic(cluster, Confluent(), topic, 1, 3)
    file = tmp_path / "lines"
    copied = Copied(cluster, topic, file)
    copied.write()
    workers = [start_worker()]
    made = eventually(
        lambda: workers[0].call("PUT", f"/connectors/{topic}/config", connector(topic, file)),
        within_s=STEP_S,
        what="a worker that makes the connector",
    )
    assert made["name"] == topic
    copied.await_more_than(0)
    for _ in range(KILLS):
        workers.append(start_worker())
        before = len(copied.committed())
        copied.write()
        copied.await_more_than(before)
        busy = running_at(workers, topic)
        busy.kill()  # in the middle of its lines: it is given more than it can have written
        workers.remove(busy)
    copied.await_all()
    found = copied.committed()
    assert found == copied.lines[: len(found)]


def running_at(workers: list[ConnectWorker], name: str) -> ConnectWorker:
    """The worker that runs the connector's task."""

    def found() -> ConnectWorker | None:
        addresses = {worker.runs_connector(name) for worker in workers}
        return next((worker for worker in workers if worker.address in addresses), None)

    worker = eventually(found, within_s=STEP_S, what="a worker that runs the task")
    assert worker is not None
    return worker
