"""The topics of the brokers themselves: deleted by force alone, and the coordinator survives it.

Source: docs/spec/coordinator.md §1.1 to §1.3.
"""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.__main__ import main
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment, await_leaders
from tests.harness.fixtures import Deploy
from tests.harness.raw_calls import (
    COORDINATOR_NOT_AVAILABLE,
    NO_ERROR,
    NOT_COORDINATOR,
    commit_offsets,
    fetch_offsets,
)
from tests.harness.raw_connection import RawConnection
from tests.harness.waiting import eventually

INVALID_TOPIC = 17
OFFSETS = "__consumer_offsets"
WAIT_S = 60.0
LONG_S = 240.0
"""One commit that finds no coordinator may take a minute."""
NOWHERE = -1
PATIENT = ("--timeout-ms", "60000")


def delete(cluster: Deployment, *words: str) -> int:
    arguments = ["topics", "delete", OFFSETS, *words, "--bootstrap", cluster.bootstrap]
    return main([*arguments, *PATIENT])


def create(cluster: Deployment, topic: str, partitions: int) -> None:
    async def made() -> None:
        async with Admin.of(cluster.bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(name=topic, partitions=partitions, replication_factor=1)]
            )

    asyncio.run(made())
    if topic != OFFSETS:  # who coordinates a group refuses commits of a topic it has not heard of
        await_leaders(cluster, topic, partitions)


def count(cluster: Deployment) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=WAIT_S)
    return len(topics.topics[OFFSETS].partitions) if OFFSETS in topics.topics else 0


def commit(cluster: Deployment, group: str, topic: str, offset: int) -> None:
    with RawConnection(coordinator(cluster.addresses, group)) as link:
        assert commit_offsets(link, group, topic, {0: offset}) == {0: NO_ERROR}


def committed(cluster: Deployment, group: str, topic: str) -> int:
    with RawConnection(coordinator(cluster.addresses, group)) as link:
        found, code = fetch_offsets(link, group, topic, [0])
    assert code == NO_ERROR
    return found[0].offset


def test_nobody_deletes_an_internal_topic_by_accident(
    deploy_fresh: Deploy, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = deploy_fresh(1)
    create(cluster, topic, 1)
    commit(cluster, group, topic, 7)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([OFFSETS], operation_timeout=WAIT_S)[OFFSETS].result(WAIT_S)
    assert refused.value.args[0].code() == INVALID_TOPIC
    assert delete(cluster) == 1
    assert f"--force-internal {OFFSETS}" in capsys.readouterr().err
    assert delete(cluster, "--force-internal", "__barnabas_audit") == 2
    assert committed(cluster, group, topic) == 7


@pytest.mark.parametrize("partitions", [50, 7], ids=["as before", "another count"])
def test_groups_work_again_at_once_after_the_offsets_topic_was_deleted(
    deploy_fresh: Deploy, topic: str, partitions: int
) -> None:
    """They hung once for good, and their old offsets were still shown."""
    cluster = deploy_fresh(3, {"offsets.topic.replication.factor": "3"})
    create(cluster, topic, 1)
    groups = [f"{topic}-{number}" for number in range(8)]
    for group in groups:
        commit(cluster, group, topic, 41)
    eventually(lambda: all(committed(cluster, group, topic) == 41 for group in groups))
    assert delete(cluster, "--force-internal", OFFSETS) == 0
    for address in cluster.addresses:
        for group in groups:
            with RawConnection(address) as link:
                found, code = fetch_offsets(link, group, topic, [0])
            codes = {code, *(result.error for result in found.values())}
            assert codes & {COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}, (found, code)
    if partitions != 50:
        create(cluster, OFFSETS, partitions)
    for group in groups:
        assert committed(cluster, group, topic) == NOWHERE
        commit(cluster, group, topic, 42)
    for group in groups:
        assert committed(cluster, group, topic) == 42
    eventually(lambda: count(cluster) == partitions, what="whoever is asked knows it")


@pytest.mark.nightly
def test_nothing_of_a_deleted_offsets_topic_is_answered_after_kills_in_between(
    deploy_fresh: Deploy, topic: str
) -> None:
    """By tests/sim/test_recreated_offsets_topic.py every day, with power cuts and nodes away."""
    cluster = deploy_fresh(3, {"offsets.topic.replication.factor": "3"})
    create(cluster, topic, 1)
    groups = [f"{topic}-{number}" for number in range(8)]
    for group in groups:
        commit(cluster, group, topic, 41)
    cluster.kill_all()
    cluster.start_all()
    assert [committed(cluster, group, topic) for group in groups] == [41] * len(groups)

    def is_gone() -> bool:
        if delete(cluster, "--force-internal", OFFSETS) == 0:
            return True
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=WAIT_S)
        return OFFSETS not in topics.topics

    eventually(is_gone, within_s=LONG_S)
    cluster.kill_all()
    cluster.start_all()
    for group in groups:
        assert committed(cluster, group, topic) == NOWHERE
        commit(cluster, group, topic, 42)
    cluster.kill_all()
    cluster.start_all()
    assert [committed(cluster, group, topic) for group in groups] == [42] * len(groups)


def test_an_offsets_topic_is_compacted_whoever_makes_or_changes_it(
    deploy_fresh: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka makes it one whose commits are deleted after a week, if it is not told otherwise."""
    cluster = deploy_fresh(1)
    create(cluster, OFFSETS, 3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = ConfigResource(ConfigResource.Type.TOPIC, OFFSETS)
    settings = admin.describe_configs([asked])[asked].result(WAIT_S)
    assert settings["cleanup.policy"].value == "compact"
    alter = ["topics", "alter", OFFSETS, "--bootstrap", cluster.bootstrap, *PATIENT]
    for change in (
        ["--config", "cleanup.policy=delete"],
        ["--config", "cleanup.policy=compact,delete"],
        ["--delete-config", "cleanup.policy"],
    ):
        assert main([*alter, *change]) == 1
        assert "must be compact" in capsys.readouterr().err
    assert main([*alter, "--config", "segment.bytes=1000000"]) == 0


def test_a_consumer_lives_through_the_deletion_of_the_offsets_topic(
    deploy_fresh: Deploy, topic: str, group: str
) -> None:
    cluster = deploy_fresh(3)
    create(cluster, topic, 1)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    place = TopicPartition(topic, 0, 5)

    def commits() -> bool:
        consumer.poll(0.1)
        try:
            consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException:
            return False
        return True

    consumer.subscribe([topic])
    try:
        eventually(commits, within_s=LONG_S)
        assert delete(cluster, "--force-internal", OFFSETS) == 0
        eventually(commits, within_s=LONG_S, what="it commits again")
        assert committed(cluster, group, topic) == 5
    finally:
        consumer.close()
