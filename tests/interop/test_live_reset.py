"""A group is reset while its members read: they are taken out, join again, and read again.

With every client here, under both protocols of rebalances where a client has both; on Apache
Kafka, too. Source: docs/spec/console.md §2.4.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from barnabas.console.__main__ import main
from barnabas.console.groups import apply_plan
from barnabas.console.groups.evict import watch_return
from tests.harness.aiokafka_client import Aiokafka
from tests.harness.client_libraries import ClientLibrary
from tests.harness.confluent_client import Confluent, ConfluentMember
from tests.harness.consumer_groups import WAIT_S, ConsumerGroup
from tests.harness.deployments import Deployment
from tests.harness.kafka_alone import kafka_alone
from tests.harness.kafka_python_client import KafkaPython
from tests.harness.own_client import Own
from tests.harness.records import numbered
from tests.harness.waiting import eventually

PARTITIONS = 3
RECORDS = 90


class CooperativeConfluent(Confluent):
    """librdkafka with incremental rebalances, and members that stay when they are away."""

    name = "confluent-cooperative"

    def join(self, bootstrap: str, group: str, topic: str) -> ConfluentMember:
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "group.instance.id": uuid.uuid4().hex,
            "partition.assignment.strategy": "cooperative-sticky",
        })  # fmt: skip
        consumer.subscribe([topic])
        return ConfluentMember(consumer)


CLIENTS = (KafkaPython(), Aiokafka(), Confluent(), CooperativeConfluent(), Own())


@pytest.fixture(autouse=True)
def _members_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command looks for them for 15 s, less than a rebalance may need on a busy machine."""
    patient = partial(watch_return, within_s=WAIT_S)
    monkeypatch.setattr(apply_plan, "watch_return", patient)


def reset(bootstrap: str, group: str, topic: str, folder: Path, *words: str) -> int:
    return main([
        "groups", "reset", group, "--topic", topic, "--to-earliest", "--execute", "--undo-file",
        str(folder / "undo.json"), "--bootstrap", bootstrap, "--timeout-ms", "60000", *words,
    ])  # fmt: skip


def read_twice(
    bootstrap: str, library: ClientLibrary, group: str, topic: str, folder: Path
) -> None:
    """All records, then a reset beside the members that read them, then all records again."""
    with ConsumerGroup(library, bootstrap, group, topic, members=2) as members:
        members.await_shares(PARTITIONS)
        assert len(members.read(RECORDS)) == RECORDS

        def is_committed() -> bool:
            """Who owned other partitions when it read may have to read the ones it has now."""
            members.commit()
            return sum(library.committed(bootstrap, group).values()) == RECORDS

        eventually(is_committed, within_s=WAIT_S, what="all of it is committed")
        members.forget()
        assert reset(bootstrap, group, topic, folder) == 1, "it has members, and nobody said so"
        assert reset(bootstrap, group, topic, folder, "--evict") == 0
        again = members.read(RECORDS)
        assert sorted(record.offset for record in again)[:PARTITIONS] == [0] * PARTITIONS
        assert len(again) == RECORDS


@pytest.mark.parametrize("library", CLIENTS, ids=lambda one: one.name)
def test_members_that_are_taken_out_come_back_and_read_again_from_the_new_offsets(
    cluster: Deployment,
    library: ClientLibrary,
    topic: str,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Own().create_topic(cluster.bootstrap, topic, PARTITIONS)
    Own().produce(cluster.bootstrap, topic, numbered(0, RECORDS))
    read_twice(cluster.bootstrap, library, group, topic, tmp_path)
    told = capsys.readouterr().err
    assert "Takes 2 members out" in told
    assert "All 2 members are back" in told


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_alone(tmp_path_factory.mktemp("kafka"), **{
        "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
    }) as bootstrap:  # fmt: skip
        yield bootstrap


@pytest.mark.kafka
@pytest.mark.parametrize("library", [CooperativeConfluent(), Own()], ids=lambda one: one.name)
def test_it_is_the_same_on_apache_kafka(
    kafka: str, library: ClientLibrary, topic: str, group: str, tmp_path: Path
) -> None:
    Own().create_topic(kafka, topic, PARTITIONS)
    Own().produce(kafka, topic, numbered(0, RECORDS))
    read_twice(kafka, library, group, topic, tmp_path)
