"""``barnabas transactions`` beside kafka-transactions of Kafka 3.9.1, on the same transactions.

Source: docs/spec/transactions.md §6 (T6.1, T6.2).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.__main__ import main
from tests.harness.committed_readers import confluent
from tests.harness.deployments import Deployment, KafkaCluster, OwnCluster
from tests.harness.kafka_tools import TRANSACTIONS, Tool
from tests.harness.raw_calls import produce
from tests.harness.raw_connection import RawConnection
from tests.harness.raw_transactions import (
    RawTransactionalProducer,
    leader_of,
    transactional_batch,
)
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

TOPIC = "written"
STRANGER = 4_711
"""A producer id that no coordinator ever gave to anybody."""
AGE_MS = 1_555_000
"""25 minutes and 55 seconds."""
LASTING_MS = 3_600_000
"""What is open stays so for all tests, each of which starts a Java or two."""
SERVER = {
    **STEADY,
    "log.retention.ms": "-1",  # or the records, which are dated back, would go
    # Data behind its marker, which is what hangs, would be refused else (KIP-890).
    "transaction.partition.verification.enable": "false",
    "transaction.max.timeout.ms": str(LASTING_MS),
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
}


@dataclass(frozen=True, slots=True)
class Hanging:
    """Where a transaction hangs, and whose it is."""

    partition: int
    start_offset: int
    producer_id: int
    epoch: int


class Stage:
    """A cluster with transactions in several states, some of them hanging."""

    def __init__(self, server: Deployment) -> None:
        self.bootstrap = server.bootstrap
        self._old_ms = time.time_ns() // 1_000_000 - AGE_MS
        asyncio.run(self._create())
        eventually(self._leads, what="leaders of the topic")
        self.committed, self.aborted, self.ongoing, self.empty = (
            RawTransactionalProducer(self.bootstrap, name, LASTING_MS)
            for name in ("committed", "aborted", "ongoing", "empty")
        )
        for one in (self.committed, self.aborted, self.ongoing, self.empty):
            one.start()
        for one, is_commit in ((self.committed, True), (self.aborted, False)):
            one.add(TOPIC, 0)
            one.send(TOPIC, 0, b"first", b"second")
            one.end(is_commit=is_commit)
            self._await_end(one)
        self.ongoing.add(TOPIC, 1, 2)
        for partition in (1, 2):
            self.ongoing.send(TOPIC, partition, b"open", timestamp_ms=self._old_ms)
        self.hanging = [self._late(), self._foreign(), self._unlisted()]

    def _late(self) -> Hanging:
        """Data of a producer behind its marker (T6.2)."""
        at = self.committed.send(TOPIC, 0, b"late", timestamp_ms=self._old_ms)
        assert at.error == 0
        return Hanging(0, at.base_offset, self.committed.producer_id, self.committed.epoch)

    def _foreign(self) -> Hanging:
        """Data of a producer whose transaction lacks this partition."""
        at = self.ongoing.send(TOPIC, 3, b"not added", timestamp_ms=self._old_ms)
        assert at.error == 0
        return Hanging(3, at.base_offset, self.ongoing.producer_id, self.ongoing.epoch)

    def _unlisted(self) -> Hanging:
        """Data of a producer id that no transactional id has."""
        data = transactional_batch([b"nobody's"], STRANGER, 0, 7, self._old_ms)
        with RawConnection(leader_of(self.bootstrap, TOPIC, 4)) as link:
            at = produce(link, TOPIC, 4, data, transactional_id="gone")
        assert at.error == 0
        return Hanging(4, at.base_offset, STRANGER, 7)

    async def _create(self) -> None:
        async with Admin.of(self.bootstrap) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=6)])

    def _leads(self) -> bool:
        async def leaders() -> bool:
            async with Admin.of(self.bootstrap) as admin:
                (topic,) = await admin.describe_topics([TOPIC])
            return all(partition.leader is not None for partition in topic.partitions)

        return asyncio.run(leaders())

    def _await_end(self, producer: RawTransactionalProducer) -> None:
        async def state() -> str:
            async with Admin.of(self.bootstrap) as admin:
                return (await admin.describe_transaction(producer.transactional_id)).state

        eventually(lambda: asyncio.run(state()).startswith("Complete"), what="all its markers")


@pytest.fixture(scope="module", params=["kafka", "ours"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    server: Deployment = (KafkaCluster if request.param == "kafka" else OwnCluster)(1, SERVER)
    try:
        yield Stage(server)
    finally:
        server.stop()


class Shell:
    """``barnabas transactions`` as somebody types it."""

    def __init__(self, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
        self._at = ("--bootstrap", stage.bootstrap, "--timeout-ms", "60000")
        self._capsys = capsys
        self.told = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        """What it prints; fails unless it ends with ``code``."""
        self._capsys.readouterr()
        ended = main(["transactions", *words, *self._at])
        shown = self._capsys.readouterr()
        self.told = shown.err
        assert ended == code, shown.out + shown.err
        return shown.out

    def rows(self, *words: str) -> list[list[str]]:
        """The cells of the table, its head first, the rest sorted."""
        return sorted_rows(self(*words))

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(stage, capsys)


@pytest.fixture
def kafkas(tool: Tool, stage: Stage) -> Any:
    """The rows that kafka-transactions prints."""

    def rows(*words: str) -> list[list[str]]:
        return sorted_rows(tool(TRANSACTIONS, "--bootstrap-server", stage.bootstrap, *words))

    return rows


def sorted_rows(text: str) -> list[list[str]]:
    head, *rest = (line.split() for line in text.splitlines() if line.strip())
    return [head, *sorted(rest)]


def test_all_ids_are_listed_as_by_kafkas_tool(shell: Shell, kafkas: Any, stage: Stage) -> None:
    """T6.1: list."""
    ours = shell.rows("list")
    assert ours == kafkas("list")
    states = {row[0]: row[3] for row in ours[1:]}
    assert states == {
        "committed": "CompleteCommit",
        "aborted": "CompleteAbort",
        "ongoing": "Ongoing",
        "empty": "Empty",
    }
    by_json = {row["transactional_id"]: row["producer_id"] for row in shell.json("list")}
    assert by_json["ongoing"] == stage.ongoing.producer_id


def test_an_old_transaction_is_filtered_as_by_kafkas_tool(shell: Shell, kafkas: Any) -> None:
    """T6.1: list by duration; an id that never began a transaction passes every filter."""
    words = ("list", "--duration-filter", "3600000")
    ours = shell.rows(*words)
    assert ours == kafkas(*words)
    assert [row[0] for row in ours[1:]] == ["empty"]


def test_ids_are_filtered_by_state_and_producer_id(shell: Shell, stage: Stage) -> None:
    states = ("--state", "ongoing", "--state", "Empty")
    assert {row[0] for row in shell.rows("list", *states)[1:]} == {"ongoing", "empty"}
    one = ("--producer-id", str(stage.aborted.producer_id))
    assert [row[0] for row in shell.rows("list", *one)[1:]] == ["aborted"]
    assert shell.rows("list", *states, *one)[1:] == []


@pytest.mark.parametrize("name", ["ongoing", "empty"])
def test_a_transaction_is_described_as_by_kafkas_tool(shell: Shell, kafkas: Any, name: str) -> None:
    """T6.1: describe, but for the duration, which goes on, and the order of partitions."""
    ours, theirs = (
        comparable(rows)
        for rows in (
            shell.rows("describe", name),
            kafkas("describe", "--transactional-id", name),
        )
    )
    assert ours == theirs


def comparable(rows: list[list[str]]) -> list[list[str]]:
    head, *lines = rows
    duration = head.index("TransactionDurationMs")
    return [head] + [
        [*line[:duration], str(line[duration] == "None"), *sorted(",".join(line[8:]).split(","))]
        for line in lines
    ]


def test_an_unknown_id_is_named_and_ends_with_1(shell: Shell) -> None:
    shown = shell("describe", "nobody", "empty", code=1)
    assert "nobody" not in shown
    assert "empty" in shown
    assert "no coordinator has a transactional id 'nobody'" in shell.told


@pytest.mark.parametrize(("partition", "where"), [(0, ()), (1, ("--broker-id", "1")), (5, ())])
def test_producers_are_described_as_by_kafkas_tool(
    shell: Shell, kafkas: Any, partition: int, where: tuple[str, ...]
) -> None:
    """T6.1: describe-producers."""
    words = ("describe-producers", "--topic", TOPIC, "--partition", str(partition), *where)
    assert shell.rows(*words) == kafkas(*words)


def test_a_partition_that_is_not_there_is_told(shell: Shell) -> None:
    shell("describe-producers", "--topic", TOPIC, "--partition", "99", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in shell.told
    shell("find-hanging", "--topic", TOPIC, "--partition", "99", code=1)
    assert "no partition 99" in shell.told


@pytest.mark.parametrize(
    "where",
    [("--topic", TOPIC, "--partition", "3"), ("--broker-id", "1")],
    ids=" ".join,
)
def test_what_hangs_is_found_as_by_kafkas_tool(
    shell: Shell, kafkas: Any, stage: Stage, where: tuple[str, ...]
) -> None:
    """T6.1, T6.2: find-hanging; a transaction that is old and held by its id does not hang."""
    ours = shell.rows("find-hanging", *where)
    theirs = kafkas("find-hanging", *where)
    assert [row[:-1] for row in ours] == [row[:-1] for row in theirs]
    assert all(int(one[-1]) <= int(two[-1]) for one, two in zip(ours[1:], theirs[1:], strict=True))
    wanted = [one for one in stage.hanging if "--partition" not in where or one.partition == 3]
    assert [(int(row[1]), int(row[2]), int(row[5])) for row in ours[1:]] == [
        (one.partition, one.producer_id, one.start_offset) for one in wanted
    ]


def test_every_topic_is_searched_by_default_and_the_young_do_not_hang(shell: Shell) -> None:
    found = shell.json("find-hanging")
    assert [(one["topic"], one["partition"]) for one in found] == [
        (TOPIC, 0),
        (TOPIC, 3),
        (TOPIC, 4),
    ]
    assert shell.json("find-hanging", "--max-transaction-timeout", "60") == []


def test_a_transaction_that_its_coordinator_has_is_not_aborted(shell: Shell) -> None:
    words = ("abort", "--topic", TOPIC, "--partition", "1", "--start-offset", "0")
    shown = shell(*words, "--execute", code=1)
    assert shown.splitlines()[1].split()[:2] == [TOPIC, "1"]
    assert "transactional id 'ongoing' still has this transaction (Ongoing" in shell.told
    shell("abort", "--topic", TOPIC, "--partition", "1", "--start-offset", "5", code=1)
    assert "no transaction is open" in shell.told
    rows = shell.rows("describe-producers", "--topic", TOPIC, "--partition", "1")
    assert rows[1][-1] == "0"


def test_a_hanging_transaction_is_aborted_and_its_owner_goes_on(
    shell: Shell, tool: Tool, stage: Stage
) -> None:
    """T6.2: ours aborts two, Kafka's tool one; readers of committed records go on behind them."""
    late, foreign, unlisted = stage.hanging
    for one in (late, unlisted):
        where = ("--topic", TOPIC, "--partition", str(one.partition))
        words = ("abort", *where, "--start-offset", str(one.start_offset))
        shell(*words)
        assert "dry run" in shell.told
        read(stage, one.partition, one.start_offset)
        found = shell.json(*words, "--execute")
        assert (found["aborted"], found["held_by"]) == (True, None)
        assert found["transaction"]["producer_epoch"] == one.epoch
    tool(
        TRANSACTIONS, "--bootstrap-server", stage.bootstrap, "abort", "--topic", TOPIC,
        "--partition", str(foreign.partition), "--start-offset", str(foreign.start_offset),
    )  # fmt: skip
    assert shell.json("find-hanging") == []
    assert read(stage, 4, 2) == []
    assert read(stage, 3, 2) == []

    owner = stage.committed  # in the epoch and with the sequences that it had
    owner.add(TOPIC, 0)
    assert owner.send(TOPIC, 0, b"after").error == 0
    owner.end(is_commit=True)
    end = late.start_offset + 4
    eventually(lambda: not is_open(shell, 0), what="the marker")
    assert read(stage, 0, end) == [b"first", b"second", b"after"]


def is_open(shell: Shell, partition: int) -> bool:
    """Some transaction is open in a partition."""
    words = ("describe-producers", "--topic", TOPIC, "--partition", str(partition))
    return any(row[-1] != "None" for row in shell.rows(*words)[1:])


def read(stage: Stage, partition: int, end: int) -> list[bytes]:
    """The committed records of a partition up to its last stable offset, which is ``end``."""
    rows = confluent(stage.bootstrap, TOPIC, partition, "read_committed", end)
    return [value for _, value in rows]
