"""A cluster that tells what happens to it: its events, and what administrators change.

Source: docs/spec/console.md §2.2 (E, A).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import confluent_kafka.admin
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from barnabas.client import SyncConsumer
from barnabas.protocol.audit_topic import AUDIT_TOPIC, AuditRecord, parse_audit_value
from barnabas.protocol.events_topic import EVENTS_TOPIC, ClusterEvent, parse_event_value
from tests.harness.deployments import OwnCluster
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually
from tests.interop.test_group_history import WAIT_S

ADMIN: Final[Any] = confluent_kafka.admin
SECRET = "tell-nobody-of-this"
SETTINGS = {
    **STEADY,
    "events.topic.enable": "true",
    "beacon.timeout.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnCluster]:
    running = OwnCluster(3, SETTINGS)
    yield running
    running.stop()


def values(cluster: OwnCluster, topic: str) -> list[bytes]:
    """All that stands in a topic now; nothing where it cannot be read yet."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    known = consumer.list_topics(timeout=WAIT_S).topics.get(topic)
    if known is None or not known.partitions:
        consumer.close()
        return []
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in known.partitions])
    found, left = [], set(known.partitions)
    while left:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{topic} says nothing"
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition())
    consumer.close()
    return found


def events(cluster: OwnCluster, kind: str) -> list[ClusterEvent]:
    found = [parse_event_value(value) for value in values(cluster, EVENTS_TOPIC)]
    return [event for event in found if event.event == kind]


def some(cluster: OwnCluster, kind: str, wanted: Callable[[ClusterEvent], bool]) -> ClusterEvent:
    """The first event of a kind that is ``wanted``, once it is there."""
    found = eventually(
        lambda: [event for event in events(cluster, kind) if wanted(event)], what=f"{kind} is told"
    )
    return found[0]


def change(cluster: OwnCluster, action: str) -> AuditRecord:
    def found() -> list[AuditRecord]:
        records = [parse_audit_value(value) for value in values(cluster, AUDIT_TOPIC)]
        return [record for record in records if record.action == action]

    return eventually(found, what=f"{action} is recorded")[0]


def is_whole(cluster: OwnCluster) -> bool:
    """Every replica is in sync, as far as the node knows that is asked."""
    admin = ADMIN.AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = admin.list_topics(timeout=WAIT_S).topics.values()
    return all(
        len(partition.isrs) == len(partition.replicas)
        for topic in topics
        for partition in topic.partitions.values()
    )


def test_nodes_tell_that_they_started_and_who_rules(cluster: OwnCluster) -> None:
    for node in (1, 2, 3):
        started = some(cluster, "node-started", lambda event, node=node: event.node == node)  # type: ignore[misc]
        assert started.fields["roles"] == ["broker", "coordinator"]
    ruling = some(cluster, "controller-elected", lambda event: True)
    assert ruling.fields["epoch"] >= 1


def test_what_an_administrator_changes_is_recorded_without_its_secrets(cluster: OwnCluster) -> None:
    admin = ADMIN.AdminClient({"bootstrap.servers": cluster.bootstrap, "client.id": "ops"})
    admin.create_topics([ADMIN.NewTopic("orders", 1, 3)])["orders"].result(WAIT_S)
    created = change(cluster, "CreateTopics")
    assert (created.topic, created.client_id, created.group) == ("orders", "ops", "")
    assert json.loads(created.what)["result"] == "success"
    altered = ADMIN.ConfigResource(
        ADMIN.ResourceType.TOPIC,
        "orders",
        incremental_configs=[
            ADMIN.ConfigEntry(
                "retention.ms", "123456", incremental_operation=ADMIN.AlterConfigOpType.SET
            )
        ],
    )
    (done,) = admin.incremental_alter_configs([altered]).values()
    done.result(WAIT_S)
    (part,) = json.loads(change(cluster, "IncrementalAlterConfigs").what)["parts"]
    assert part["settings"] == ["retention.ms"]
    user = ADMIN.UserScramCredentialUpsertion(
        "ann", ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_256, 4096), SECRET.encode()
    )
    (done,) = admin.alter_user_scram_credentials([user]).values()
    done.result(WAIT_S)
    (part,) = json.loads(change(cluster, "AlterUserScramCredentials").what)["parts"]
    assert part["user"] == "ann"
    # Before the topic goes: nodes read what has changed when they come to it.
    some(cluster, "settings-changed", lambda event: event.fields.get("topic") == "orders")
    admin.delete_topics(["orders"])["orders"].result(WAIT_S)
    assert change(cluster, "DeleteTopics").topic == "orders"
    assert not any(SECRET.encode() in value for value in values(cluster, AUDIT_TOPIC))


def test_nobody_else_writes_into_the_topic(cluster: OwnCluster) -> None:
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(EVENTS_TOPIC, b"forged", on_delivery=lambda error, _: told.append(error))
    producer.flush(WAIT_S)
    assert [error.name() for error in told] == ["TOPIC_EXCEPTION"]


def test_a_node_that_is_killed_is_told_of_with_cause_and_phases_and_who_took_over(
    cluster: OwnCluster,
) -> None:
    with SyncConsumer(cluster.bootstrap, EVENTS_TOPIC, group="readers"):
        pass  # so that there is an offsets topic to fail over
    some(cluster, "offsets-loaded", lambda event: True)
    some(cluster, "controller-elected", lambda event: True)
    elected = events(cluster, "controller-elected")
    ruler = max(elected, key=lambda event: event.fields["epoch"]).node
    victim = next(node for node in (1, 2, 3) if node != ruler)
    before = len(events(cluster, "offsets-loaded"))
    node = cluster.nodes[victim - 1]
    # On a busy machine followers fall behind for two seconds: nobody could take over from victim.
    eventually(lambda: is_whole(cluster), what="all replicas are in sync")
    node.kill()
    lost = some(cluster, "failover", lambda event: event.fields["lost"] == victim)
    assert lost.fields["cause"] in ("silent", "session")
    assert lost.fields["noticed_s"] > 0
    assert lost.fields["elected_s"] > 0
    assert lost.fields["partitions"] > 0
    assert lost.fields["leaderless"] == 0
    eventually(lambda: len(events(cluster, "offsets-loaded")) > before, what="others took over")
    moved = some(cluster, "roles-changed", lambda event: bool(event.fields["offsets_elected"]))
    assert moved.node != victim or moved.fields["elected"] > 0
    node.spawn()
    node.let_serve()
    node.wait_ready()
    some(cluster, "node-joined", lambda event: victim in event.fields["nodes"])
    some(cluster, "in-sync-changed", lambda event: event.fields["expanded"] > 0)
    node.ask_to_stop()
    node.wait_stopped()
    some(cluster, "node-stopping", lambda event: event.node == victim)
    some(
        cluster,
        "failover",
        lambda event: (event.fields["lost"], event.fields["cause"]) == (victim, "shutdown"),
    )
    node.spawn()
    node.let_serve()
    node.wait_ready()
