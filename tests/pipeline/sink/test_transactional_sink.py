"""The sink that writes in transactions, called as Spark would call it: death at every point.

Source: docs/spec/pipeline.md §2.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from barnabas.client.errors import KafkaError
from barnabas.pipeline.blocking_client import client_for
from barnabas.pipeline.frames import stream_to_topic, stream_topic
from barnabas.pipeline.sink import transactions
from barnabas.pipeline.sink.decisions import Decisions
from barnabas.pipeline.sink.topic_options import topic_sink_options
from barnabas.pipeline.sink.transactional_writer import Prepared, TransactionalStreamWriter
from barnabas.pipeline.sink.transactions import OVER, Transaction
from barnabas.pipeline.source.errors import BadOption, ProgressLost
from tests.harness.confluent_client import Confluent
from tests.harness.kafka_alone import values_shown
from tests.harness.records import Sent
from tests.pipeline.new_topics import create_topic
from tests.pipeline.open_transactions import await_none_open
from tests.pipeline.slow_machine import available_now

PARTITIONS = (0, 1)
ROWS = 12
QUERY = "1f0e"


class Dead(BaseException):
    """Stands for the end of the process: nobody cleans up behind it."""


@pytest.fixture
def target(transactional: str, topic: str) -> str:
    create_topic(transactional, topic, len(PARTITIONS))
    return topic


class RunningTask:
    """What Spark tells a task."""

    def __init__(self, query: str, batch: int, task: int) -> None:
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
        self._task = task

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties.get(name)

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._task


class Query:
    """A stream of one task a partition, as Spark runs it, but for its driver's death."""

    def __init__(
        self, bootstrap: str, target: str, directory: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.bootstrap, self.target = bootstrap, target
        self.checkpoint = directory / "checkpoint"
        self._patch = patch
        self._query = f"{QUERY}-{target}"
        told = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": target,
            "checkpointLocation": str(self.checkpoint),
            "transactional": "true",
            "kafka.batch.size": "100",
            "kafka.transaction.timeout.ms": "600000",
        }
        self.options = topic_sink_options(told, is_stream=True)

    def rows(self, batch: int, task: int) -> list[bytes]:
        """What a task of a batch writes, into the partition of its number."""
        return [b"%d-%d-%d" % (batch, task, row) for row in range(ROWS)]

    def prepare(self, batch: int, task: int) -> Prepared:
        """Run one task, on a driver of its own."""
        writer = TransactionalStreamWriter(self.options)
        return self.write(writer, batch, task, self.rows(batch, task))

    def write(
        self, writer: TransactionalStreamWriter, batch: int, task: int, rows: Sequence[bytes]
    ) -> Prepared:
        context = RunningTask(self._query, batch, task)
        self._patch.setattr(TaskContext, "get", lambda: context)
        made = pa.record_batch(
            [pa.array(rows, pa.binary()), pa.array([task % 2] * len(rows), pa.int32())],
            names=["value", "partition"],
        )
        return writer.write(iter([made]))

    def run(self, batch: int) -> None:
        """A whole batch, by a driver that has just started or goes on."""
        writer = TransactionalStreamWriter(self.options)
        writer.finish_decided()
        messages = [self.write(writer, batch, task, self.rows(batch, task)) for task in PARTITIONS]
        writer.commit(list(messages), batch)

    def note_done(self, batch: int) -> None:
        """What Spark does once a batch is committed."""
        folder = self.checkpoint / "commits"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).write_text("v1\n{}")

    def shown(self, isolation: str = "read_committed") -> dict[int, list[bytes]]:
        """What librdkafka reads of each partition by now."""
        return {
            partition: values_shown(self.bootstrap, self.target, partition, isolation)
            for partition in PARTITIONS
        }

    def shown_in_the_end(self) -> dict[int, list[bytes]]:
        """What it reads once no transaction is open: a commit is decided before it is shown."""
        await_none_open(self.bootstrap, self.target, PARTITIONS)
        return self.shown()

    def expected(self, *batches: int) -> dict[int, list[bytes]]:
        return {
            task: [row for batch in batches for row in self.rows(batch, task)]
            for task in PARTITIONS
        }


@pytest.fixture
def query(
    transactional: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Query:
    return Query(transactional, target, tmp_path, monkeypatch)


def die_before_the_note(query: Query, patch: pytest.MonkeyPatch) -> None:
    """A task: its records are sent, and nothing says so."""

    async def note_batch(*_: Any) -> None:
        raise Dead

    query.prepare(1, 0)
    with patch.context() as patched:
        patched.setattr(transactions, "note_batch", note_batch)
        with pytest.raises(Dead):
            query.prepare(1, 1)


def die_before_the_decision(query: Query, patch: pytest.MonkeyPatch) -> None:
    for task in PARTITIONS:
        query.prepare(1, task)


def die_after(count: int) -> Callable[[Query, pytest.MonkeyPatch], None]:
    """A driver: it has decided, and ended so many transactions."""

    class Dying(TransactionalStreamWriter):
        def end(self, ended: Sequence[Transaction], *, is_commit: bool = True) -> Any:
            assert not super().end(ended[:count], is_commit=is_commit)
            raise Dead

    def die(query: Query, patch: pytest.MonkeyPatch) -> None:
        prepared = [query.prepare(1, task) for task in PARTITIONS]
        with pytest.raises(Dead):
            Dying(query.options).commit(list(prepared), 1)

    return die


DEATHS = {
    "task before the note": die_before_the_note,
    "driver before the decision": die_before_the_decision,
    "driver before the first commit": die_after(0),
    "driver between two commits": die_after(1),
    "driver after the last commit": die_after(2),
}
REWRITTEN = {"task before the note": 2, "driver before the decision": 2}
"""How many tasks' rows lie in the topic twice, one of them aborted."""


@pytest.mark.parametrize("death", DEATHS)
def test_a_batch_interrupted_anywhere_is_there_once_and_in_order(
    query: Query, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    query.run(0)
    query.note_done(0)
    DEATHS[death](query, monkeypatch)

    query.run(1)
    query.note_done(1)
    query.run(2)

    assert query.shown_in_the_end() == query.expected(0, 1, 2)
    everything = sum(map(len, query.shown("read_uncommitted").values()))
    assert everything == (2 * 3 + REWRITTEN.get(death, 0)) * ROWS


def test_what_is_prepared_is_not_shown_before_the_driver_has_decided(query: Query) -> None:
    prepared = [query.prepare(0, task) for task in PARTITIONS]
    assert query.shown() == query.expected()
    assert query.shown("read_uncommitted") == query.expected(0)

    TransactionalStreamWriter(query.options).commit(list(prepared), 0)

    assert query.shown_in_the_end() == query.expected(0)


def test_a_decided_transaction_that_timed_out_is_written_again_and_no_other(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after(1)(query, monkeypatch)
    decided = Decisions(str(query.checkpoint)).newest()
    assert decided is not None
    client = client_for(query.bootstrap)
    name = decided.transactions[1].transactional_id
    client.run(transactions.begin(client.cluster, name, 60_000))  # ends it as a time-out does

    query.run(1)

    assert query.shown_in_the_end() == query.expected(1)
    assert sum(map(len, query.shown("read_uncommitted").values())) == 3 * ROWS


def test_a_task_that_runs_again_fences_the_one_before_which_can_then_do_nothing(
    query: Query,
) -> None:
    zombies = [query.prepare(0, task) for task in PARTITIONS]
    heirs = [query.prepare(0, task) for task in PARTITIONS]
    zombie = zombies[0].transaction
    assert zombie is not None
    client = client_for(query.bootstrap)

    with pytest.raises(KafkaError) as refused:
        client.run(transactions.note_batch(client.cluster, zombie, [query.target], 7))
    assert refused.value.code in OVER
    with pytest.raises(KafkaError, match="2 of 2 transactions of batch 0"):
        TransactionalStreamWriter(query.options).commit(list(zombies), 0)
    assert query.shown() == query.expected()
    TransactionalStreamWriter(query.options).commit(list(heirs), 0)

    assert query.shown_in_the_end() == query.expected(0)


def test_a_driver_that_was_replaced_doubles_nothing_when_it_wakes_up(query: Query) -> None:
    frozen = [query.prepare(0, task) for task in PARTITIONS]
    query.run(0)
    with pytest.raises(KafkaError, match="were not committed"):
        TransactionalStreamWriter(query.options).commit(list(frozen), 0)

    query.run(0)  # the replacement died as well, before Spark noted the batch

    assert query.shown_in_the_end() == query.expected(0)


def test_a_task_that_fails_leaves_no_reader_waiting(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def note_batch(*_: Any) -> None:
        raise KafkaError(-1, "no luck")

    with monkeypatch.context() as patched:
        patched.setattr(transactions, "note_batch", note_batch)
        with pytest.raises(KafkaError, match="no luck"):
            query.prepare(0, 0)
    other = query.prepare(0, 1)
    TransactionalStreamWriter(query.options).abort([other, None], 0)
    assert query.shown_in_the_end() == query.expected()

    query.run(0)

    assert query.shown_in_the_end() == query.expected(0)


def test_an_abort_leaves_alone_what_was_decided(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls it when commit has raised."""
    prepared = [query.prepare(0, task) for task in PARTITIONS]
    monkeypatch.setattr(transactions, "end", unreachable)
    with pytest.raises(KafkaError, match="2 of 2"):
        TransactionalStreamWriter(query.options).commit(list(prepared), 0)
    monkeypatch.undo()
    TransactionalStreamWriter(query.options).abort(list(prepared), 0)

    TransactionalStreamWriter(query.options).finish_decided()

    assert query.shown_in_the_end() == query.expected(0)


async def unreachable(*_: Any, **__: Any) -> None:
    raise KafkaError(13, "nobody answers")


def test_a_batch_that_comes_again_in_other_tasks_is_refused_and_what_it_wrote_aborted(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after(1)(query, monkeypatch)
    writer = TransactionalStreamWriter(query.options)
    writer.finish_decided()
    messages = [query.write(writer, 1, task, [b"another division"]) for task in range(3)]

    with pytest.raises(ProgressLost, match="by 2 tasks, of which some are committed, and now by 3"):
        writer.commit(list(messages), 1)
    writer.abort(list(messages), 1)

    assert query.shown_in_the_end() == query.expected(1)


def test_a_decision_that_brokers_have_forgotten_is_not_guessed_at(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after(1)(query, monkeypatch)
    path = Decisions(str(query.checkpoint)).path
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "at_ms": found["at_ms"] - 7 * 86_400_000}))

    with pytest.raises(ProgressLost, match="batch 1 was interrupted 7 days ago"):
        query.run(1)
    query.note_done(1)
    query.run(2)


def test_a_stream_of_spark_copies_in_transactions_and_a_batch_that_comes_again_is_left_out(
    spark: SparkSession, transactional: str, target: str, tmp_path: Path
) -> None:
    source, checkpoint = f"{target}-source", tmp_path / "checkpoint"
    client, bootstrap = Confluent(), transactional
    create_topic(bootstrap, source, len(PARTITIONS))
    sent = [Sent(b"v%d" % number, partition=number % 2) for number in range(40)]
    client.produce(bootstrap, source, sent)
    more = {"maxOffsetsPerTrigger": "20", "isolation.level": "read_committed"}

    def copy() -> None:
        frame = stream_topic(
            spark, source, bootstrap, checkpoint=str(checkpoint), start="earliest", options=more
        )
        rows = frame.select("value", "partition")
        available_now(
            stream_to_topic(rows, bootstrap, target, checkpoint=str(checkpoint), transactional=True)
        )

    copy()
    for path in checkpoint.glob("commits/*1*"):
        path.unlink()  # as if the driver had died before Spark noted the batch
    copy()
    await_none_open(bootstrap, target, PARTITIONS)

    for isolation in ("read_committed", "read_uncommitted"):
        for partition in PARTITIONS:
            found = values_shown(bootstrap, target, partition, isolation)
            assert found == [record.value for record in sent if record.partition == partition]


def test_a_task_without_rows_needs_no_transaction(query: Query) -> None:
    writer = TransactionalStreamWriter(query.options)

    empty = query.write(writer, 0, 0, [])
    writer.commit([empty], 0)

    assert empty.transaction is None
    assert Decisions(str(query.checkpoint)).newest() is None


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"idempotent": "false"}, "writes nothing twice"),
        ({"kafka.transactional.id": "mine"}, "say transactionalIdPrefix"),
        ({"kafka.transaction.timeout.ms": "soon"}, "no whole number"),
        ({"checkpointLocation": ""}, "must be an option"),
    ],
)
def test_options_that_contradict_transactions_are_refused(
    more: dict[str, str], problem: str
) -> None:
    told = {"kafka.bootstrap.servers": "h:1", "checkpointLocation": "/c", "transactional": "true"}
    with pytest.raises(BadOption, match=problem):
        topic_sink_options({**told, **more}, is_stream=True)


def test_a_frame_that_is_no_stream_has_no_transactions() -> None:
    told = {"kafka.bootstrap.servers": "h:1", "transactional": "true"}
    with pytest.raises(BadOption, match="only a stream"):
        topic_sink_options(told, is_stream=False)


def test_a_time_out_that_brokers_do_not_allow_is_told_by_its_option(query: Query) -> None:
    client = client_for(query.bootstrap)

    with pytest.raises(KafkaError, match=r"timeout\.ms: 900001 is more than"):
        client.run(transactions.begin(client.cluster, query.target, 900_001))
