"""Offsets of groups at rest, moved between the stores by the command; resumed, verified, returned.

Source: docs/spec/coordinator.md §6.8.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed
from barnabas.client.admin.offset_migration import (
    MigrationPlan,
    StoredOffsets,
    classic_activity,
    joined,
    moved,
    number_in,
)
from barnabas.client.classic.offset_stores import ZooKeeperOffsetStore
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.__main__ import main
from barnabas.console.command_line.failure import Failure
from barnabas.console.development.cluster import Cluster
from barnabas.console.offsets.migration_files import MigrationJournal, read_plan, write_plan
from tests.harness.steady_settings import STEADY

three_partitions = pytest.mark.kafka_topic(partitions=3)
A = TopicPartition("t", 0)


def held(
    zookeeper: int | None, kafka: int | None, topic_partition: TopicPartition = A
) -> StoredOffsets:
    return StoredOffsets(
        group="g", topic_partition=topic_partition, zookeeper=zookeeper, kafka=kafka
    )


@pytest.mark.parametrize(
    ("zookeeper", "kafka", "source_wins", "step"),
    [
        (None, 5, False, ("nothing", None)),
        (5, None, False, ("new", 5)),
        (5, 5, False, ("same", None)),
        (7, 5, False, ("forward", 7)),
        (5, 7, False, ("ahead", None)),
        (5, 7, True, ("rewind", 5)),
        (0, None, False, ("new", 0)),
    ],
)
def test_the_larger_offset_is_kept_unless_the_source_is_said_to_win(
    zookeeper: int | None, kafka: int | None, source_wins: bool, step: Any
) -> None:
    assert held(zookeeper, kafka).step("kafka", source_wins=source_wins) == step
    assert held(kafka, zookeeper).step("zookeeper", source_wins=source_wins) == step


def test_a_store_is_behind_when_its_reader_would_repeat_what_was_acknowledged() -> None:
    assert held(7, 5).is_behind("kafka")
    assert held(7, None).is_behind("kafka")
    assert not held(5, 7).is_behind("kafka")
    assert not held(None, 7).is_behind("kafka")
    assert held(5, 7).is_behind("zookeeper")


@pytest.mark.parametrize(
    ("zookeeper", "kafka", "levelled"),
    [
        (5, None, ("kafka", 5)),
        (None, 5, ("zookeeper", 5)),
        (7, 5, ("kafka", 7)),
        (5, 7, ("zookeeper", 7)),
        (5, 5, (None, 5)),
        (0, None, ("kafka", 0)),
        (None, None, (None, None)),
    ],
)
def test_two_stores_are_levelled_by_writing_the_larger_offset_to_the_other(
    zookeeper: int | None, kafka: int | None, levelled: Any
) -> None:
    assert held(zookeeper, kafka).leveled() == levelled


def test_a_znode_without_a_number_or_with_a_negative_one_holds_no_offset() -> None:
    texts = (b"0", b"12", b"-1", b"", b"many", b"1:2")
    assert [number_in(text) for text in texts] == [0, 12, None, None, None, None]


def test_whoever_is_registered_or_owns_a_partition_is_a_sign_of_life() -> None:
    assert classic_activity([], {"t": []}) is None
    assert classic_activity(["c"], {}) == "1 classic consumer is registered"
    assert classic_activity([], {"s": [], "t": ["0", "1"]}) == "2 partitions of t have owners"


def test_only_partitions_that_exist_are_planned() -> None:
    gone = TopicPartition("gone", 0)
    assert joined("g", {A: 1, gone: 2}, {gone: 3}, {A}) == [held(1, None)]


def test_a_change_of_the_source_since_the_plan_is_seen() -> None:
    other = TopicPartition("t", 1)
    assert moved([held(1, None)], [held(1, 9)], "zookeeper") == []
    assert moved([held(1, None)], [held(2, None), held(1, None, other)], "zookeeper") == [A, other]


def test_a_plan_is_read_back_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    plan = MigrationPlan(to="kafka", time_ms=1, source_wins=False, held={"g": [held(1, None)]})
    write_plan(path, plan)
    assert read_plan(path) == plan
    with pytest.raises(Failure, match="there already"):
        write_plan(path, plan)


def test_a_journal_that_was_torn_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    journal = MigrationJournal(tmp_path / "plan")
    journal.begin("g", "kafka", [held(1, None)], 17)
    journal.done("g", "kafka", 1, 18)
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + b'{"event": "be')
    again = MigrationJournal(tmp_path / "plan")
    assert again.is_done("g", "kafka")
    again.begin("h", "kafka", [], 19)
    assert journal.path.read_bytes().startswith(whole + b'{"event": "begin", "group": "h"')
    assert MigrationJournal(tmp_path / "plan").touched() == ["g", "h"]
    assert not again.is_done("h", "kafka")


class Town:
    """A real cluster, a topic of it, and the command in front of both."""

    def __init__(
        self, cluster: Cluster, topic: str, zookeeper: ZooKeeper, admin: Admin, plan: Path
    ) -> None:
        self.topic = topic
        self.zookeeper = zookeeper
        self.admin = admin
        self.plan = plan
        self._where = (
            *("--bootstrap", cluster.bootstrap, "--zookeeper", cluster.zookeeper),
            *("--json", "--timeout-ms", "60000"),
        )

    async def migrate(self, step: str, *options: str) -> int:
        words = ["offsets", "migrate", step, *options, str(self.plan), *self._where]
        return await asyncio.to_thread(main, words)

    async def keep(self, group: str, *offsets: int) -> None:
        topic_partitions = [TopicPartition(self.topic, number) for number in range(len(offsets))]
        store = ZooKeeperOffsetStore(self.zookeeper, group)
        await store.commit(dict(zip(topic_partitions, offsets, strict=True)))

    async def commit(self, group: str, *offsets: int) -> None:
        wanted = {
            TopicPartition(self.topic, number): Committed(
                offset=offset, metadata="", leader_epoch=-1
            )
            for number, offset in enumerate(offsets)
        }
        codes = await self.admin.alter_offsets(group, wanted)
        assert not any(codes.values())

    async def in_kafka(self, group: str) -> list[int]:
        found = await self.admin.committed_offsets(group)
        return [found[topic_partition].offset for topic_partition in sorted(found)]

    async def in_zookeeper(self, group: str) -> list[int]:
        topic_partitions = [TopicPartition(self.topic, number) for number in range(3)]
        found = await ZooKeeperOffsetStore(self.zookeeper, group).fetch(topic_partitions)
        return [found[topic_partition] for topic_partition in sorted(found)]


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[Cluster]:
    """In the place of the plug-in's: one that a busy machine does not disturb."""
    with Cluster(settings=STEADY) as running:
        yield running


@pytest.fixture
async def town(kafka_cluster: Cluster, kafka_topic: str, tmp_path: Path) -> AsyncIterator[Town]:
    zookeeper = await connect(kafka_cluster.zookeeper)
    async with Admin.of(kafka_cluster.bootstrap) as admin:
        yield Town(kafka_cluster, kafka_topic, zookeeper, admin, tmp_path / "plan.json")
    await zookeeper.close()


@three_partitions
async def test_a_group_moves_to_kafka_and_back_with_what_it_committed_there(
    town: Town, kafka_group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await town.keep(kafka_group, 10, 20, 30)
    await town.commit(kafka_group, 15)
    assert await town.migrate("plan", "--group", kafka_group) == 0
    steps = [document["step"] for document in json.loads(capsys.readouterr().out)]
    assert steps == ["ahead", "new", "new"]
    assert await town.migrate("verify") == 1
    assert await town.migrate("apply") == 0
    assert await town.in_kafka(kafka_group) == [15, 20, 30]
    assert await town.migrate("verify") == 0
    capsys.readouterr()
    assert await town.migrate("apply") == 0
    assert [document["state"] for document in json.loads(capsys.readouterr().out)] == ["before"]
    await town.commit(kafka_group, 16, 25, 30)
    assert await town.migrate("rollback") == 0
    assert await town.in_zookeeper(kafka_group) == [16, 25, 30]
    assert await town.in_kafka(kafka_group) == [16, 25, 30]


@three_partitions
async def test_a_group_with_somebody_in_it_is_refused_unless_told(
    town: Town, kafka_group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = f"{kafka_group}-quiet"
    for group in (kafka_group, quiet):
        await town.keep(group, 1, 2, 3)
    await town.zookeeper.create(
        f"/consumers/{kafka_group}/owners/{town.topic}/0", b"c-0", ephemeral=True, parents=True
    )
    assert await town.migrate("plan", "--group", kafka_group, "--group", quiet) == 0
    capsys.readouterr()
    assert await town.migrate("apply") == 1
    refused, done = json.loads(capsys.readouterr().out)
    assert (refused["state"], done["state"]) == ("refused", "done")
    assert "have owners" in refused["why"]
    assert await town.in_kafka(kafka_group) == []
    assert await town.migrate("apply", "--even-if-live") == 0
    assert await town.in_kafka(kafka_group) == [1, 2, 3]


@three_partitions
async def test_a_group_that_moved_on_since_the_plan_is_refused(
    town: Town, kafka_group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await town.keep(kafka_group, 1, 2, 3)
    assert await town.migrate("plan", "--group", kafka_group) == 0
    await town.keep(kafka_group, 1, 2, 4)
    capsys.readouterr()
    assert await town.migrate("apply") == 1
    [refused] = json.loads(capsys.readouterr().out)
    assert "1 offsets changed since the plan" in refused["why"]
    assert await town.in_kafka(kafka_group) == []


@three_partitions
async def test_what_was_killed_between_two_writes_is_finished_by_another_apply(
    town: Town, kafka_group: str
) -> None:
    await town.keep(kafka_group, 1, 2, 3)
    assert await town.migrate("plan", "--group", kafka_group) == 0
    before = [held(1, None)]
    MigrationJournal(town.plan).begin(kafka_group, "kafka", before, 17)
    await town.commit(kafka_group, 1, 2)
    assert await town.migrate("apply") == 0
    assert await town.in_kafka(kafka_group) == [1, 2, 3]
    assert MigrationJournal(town.plan).is_done(kafka_group, "kafka")


async def test_what_cannot_be_planned_is_said_in_a_line(
    town: Town, kafka_group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, code, words in (
        ((), 2, "name groups with --group, or say --all-groups"),
        (("--group", kafka_group), 1, "no offset in either store"),
    ):
        assert await town.migrate("plan", *options) == code
        assert words in capsys.readouterr().err
    assert await town.migrate("apply") == 1
    assert "`barnabas offsets migrate plan` makes it" in capsys.readouterr().err
