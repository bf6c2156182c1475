"""Who moved which offset (docs/spec/coordinator.md §3.8): history, undo, and the topic itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.protocol.audit_topic import AUDIT_TOPIC
from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment, is_apache_kafka
from tests.harness.group_shell import GroupShell
from tests.harness.waiting import eventually

pytestmark = pytest.mark.skipif(is_apache_kafka(), reason="Kafka keeps no history of offsets")

WAIT_S = 120.0


@pytest.fixture
def had_members(groups: GroupShell, topic: str, group: str) -> str:
    """A group whose member has read the topic, committed and left."""
    groups.fill(topic)
    member = Confluent().join(groups.bootstrap, group, topic)
    read: set[tuple[int, int]] = set()

    def has_read_all() -> bool:
        read.update((record.partition, record.offset) for record in member.poll())
        return len(read) == 20

    eventually(has_read_all, what="the member reads everything", within_s=120)
    member.commit()
    member.close()  # which does not wait for ever to be answered
    eventually(
        lambda: Confluent().describe_group(groups.bootstrap, group).state == "Empty",
        what="the member has left",
    )
    return group


def history(groups: GroupShell, group: str, count: int, *words: str) -> list[dict[str, Any]]:
    """What is recorded of a group once it is ``count`` records: they come behind the answer."""

    def found() -> list[dict[str, Any]] | None:
        records: list[dict[str, Any]] = groups.json("history", group, *words)
        return records if len(records) >= count else None

    records = eventually(found, what=f"{count} records of {group}")
    assert records is not None
    assert len(records) == count
    return records


def moves(records: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    named = ("action", "partition", "old_offset", "new_offset")
    return sorted(tuple(record[name] for name in named) for record in records)


def test_a_reset_leaves_one_record_for_each_partition_undo_restores_and_a_commit_leaves_none(
    groups: GroupShell, topic: str, had_members: str
) -> None:
    """C3.10."""
    group = had_members
    words = ("reset", group, "--topic", topic, "--to-offset", "3", "--execute")
    done = groups.json(*words, "--reason", "after bug 12")
    records = history(groups, group, 2)
    assert moves(records) == [("commit", 0, 10, 3), ("commit", 1, 10, 3)]
    assert {record["change"] for record in records} == {done["change"]}
    assert {record["reason"] for record in records} == {"reset --to-offset 3: after bug 12"}
    assert {record["principal"] for record in records} == {"User:ANONYMOUS"}

    undone = groups.json("undo", "--change", done["change"], "--execute")
    assert groups.committed(group) == {(topic, 0): 10, (topic, 1): 10}
    records = history(groups, group, 4)
    assert moves(records[2:]) == [("commit", 0, 3, 10), ("commit", 1, 3, 10)]
    assert {record["reason"] for record in records[2:]} == {f"undo {done['change']}"}

    redone = ("undo", "--change", undone["change"])
    assert [row[3:5] for row in groups.rows(*redone)] == [["3", "10"], ["3", "10"]]


def test_an_undo_goes_by_what_the_group_has_now(
    groups: GroupShell, topic: str, had_members: str
) -> None:
    group = had_members
    change = groups.json("reset", group, "--all-topics", "--to-earliest", "--execute")["change"]
    history(groups, group, 2)
    groups.commit(group, topic, {1: 5})
    groups("undo", "--change", change, "--execute", code=1)
    assert f"{topic}-1 is at 5, the change left it at 0" in groups.told
    groups("undo", "--change", "000000000000", code=1)
    assert "the cluster has no record of a change 000000000000" in groups.told


def test_forgotten_and_deleted_offsets_are_in_the_history_and_come_back(
    groups: GroupShell, topic: str, had_members: str
) -> None:
    group = had_members
    forgot = groups.json("forget", group, "--topic", f"{topic}:0", "--execute")["change"]
    deleted = groups.json("delete", group, "--execute")["change"]
    assert moves(history(groups, group, 2)) == [("delete", 1, 10, None), ("forget", 0, 10, None)]
    for change in (deleted, forgot):
        groups("undo", "--change", change, "--execute")
    assert groups.committed(group) == {(topic, 0): 10, (topic, 1): 10}


def test_what_other_administrators_do_is_in_the_history_too(
    cluster: Deployment, groups: GroupShell, topic: str, had_members: str
) -> None:
    group = had_members
    coordinator(cluster.addresses, group)
    admin = AdminClient({"bootstrap.servers": groups.bootstrap, "client.id": "somebody"})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S)
    (record,) = history(groups, group, 1)
    assert moves([record]) == [("commit", 0, 10, 4)]
    assert (record["client_id"], record["reason"]) == ("somebody", "")
    groups("undo", "--change", record["change"], "--execute")
    assert groups.committed(group) == {(topic, 0): 10, (topic, 1): 10}


def test_the_history_is_shown_as_a_table_and_narrowed_down(
    groups: GroupShell, topic: str, had_members: str
) -> None:
    group = had_members
    groups("reset", group, "--topic", topic, "--to-earliest", "--execute")
    history(groups, group, 2)
    (row,) = groups.rows("history", group, "--topic", f"{topic}:1")
    assert row[2:8] == [group, topic, "1", "10", "0", "commit"]
    first = min(row[0] for row in groups.rows("history", group))  # the two are not of one moment
    assert len(groups.rows("history", group, "--since", first)) == 2
    assert len(groups.rows("history", group, "--limit", "1")) == 1
    groups("history", group, "--since", "2099-01-01T00:00:00.000")
    assert "no change of offsets is recorded" in groups.told


def test_the_audit_topic_is_internal_replicated_as_the_offsets_and_written_by_nodes_only(
    groups: GroupShell, had_members: str
) -> None:
    groups("reset", had_members, "--all-topics", "--to-earliest", "--execute")
    history(groups, had_members, 2)
    admin = AdminClient({"bootstrap.servers": groups.bootstrap})
    found = admin.list_topics(timeout=WAIT_S).topics
    factors = {
        name: {len(partition.replicas) for partition in found[name].partitions.values()}
        for name in (AUDIT_TOPIC, "__consumer_offsets")
    }
    assert factors == {AUDIT_TOPIC: {3}, "__consumer_offsets": {3}}
    for client_id in ("somebody", "__admin_client"):
        assert refusals(groups.bootstrap, client_id) == ["TOPIC_EXCEPTION"]


def refusals(bootstrap: str, client_id: str) -> list[str]:
    """What a producer is told that writes to the audit topic."""
    told: list[str] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        told.append("" if error is None else error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id})
    producer.produce(AUDIT_TOPIC, b"forged", on_delivery=delivered)
    producer.flush(WAIT_S)
    return told
