"""Barriers, transactions, quotas and users: pages that look at what others have done.

Source: docs/spec/console.md §1 and §2.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote_plus

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.admin.quotas import alter_quotas
from barnabas.client.cluster import TopicPartition
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.harness.deployments import Deployment, await_leaders, is_apache_kafka
from tests.harness.fixtures import Deploy
from tests.harness.kafka_alone import open_transaction
from tests.harness.web_console import Reader, reader_of


@pytest.fixture
async def admin(cluster: Deployment) -> AsyncIterator[Admin]:
    async with Admin.of(cluster.bootstrap) as made:
        yield made


@pytest.fixture
async def reader(cluster: Deployment) -> AsyncIterator[Reader]:
    async with reader_of(cluster.bootstrap) as made:
        yield made


@pytest.fixture
async def place(admin: Admin, cluster: Deployment, topic: str, group: str) -> TopicPartition:
    """Ten records, of which the group has read four."""
    await admin.create_topics([NewTopic(name=topic, partitions=2)])
    await asyncio.to_thread(await_leaders, cluster, topic, 2)
    async with Producer(cluster.bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, f"value {number}".encode(), partition=0)
    made = TopicPartition(topic, 0)
    await admin.alter_offsets(group, {made: Committed(offset=4)})
    return made


async def barrier(reader: Reader, group: str) -> str:
    """The URL of a barrier that is set now."""
    answer = await reader.get(f"/barrier.json?group={quote_plus(group)}")
    assert answer.status_code == 303
    return str(answer.headers["location"])


async def test_a_barrier_is_passed_when_all_that_lay_below_it_is_read(
    reader: Reader, admin: Admin, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    url = await barrier(reader, group)
    async with Producer(cluster.bootstrap) as producer:
        await producer.send(place.topic, b"written later", partition=0)
    found = await reader.json(url)
    assert (found["passed"], found["is_passed"]) == (0, False)
    assert found["partitions"][0]["needs"] == 6
    await admin.alter_offsets(group, {place: Committed(offset=10)})
    found = await reader.json(url)
    assert found["is_passed"], "what was written later does not count"
    page = await reader.get(url.replace(".json", ""))
    assert "has read everything that was acknowledged before" in page.text


async def test_markers_of_transactions_below_a_barrier_count_as_read(
    reader: Reader, admin: Admin, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    def write() -> None:
        producer = open_transaction(cluster.bootstrap, f"t-{group}", place.topic, "in it")
        producer.commit_transaction(60)

    await asyncio.to_thread(write)
    end = 0
    while end < 12:  # the marker comes behind the answer
        end = (await admin.end_offsets([place]))[place]
    url = await barrier(reader, group)
    await admin.alter_offsets(group, {place: Committed(offset=11)})
    found = await reader.json(url)
    assert found["partitions"][0]["barrier"] == 12
    assert found["is_passed"]


async def test_records_that_were_deleted_below_a_barrier_count_as_read(
    reader: Reader, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    url = await barrier(reader, group)
    kafka = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for start, needs in ((7, 3), (10, 0)):
        before = [ConfluentPartition(place.topic, place.partition, start)]
        for outcome in kafka.delete_records(before).values():
            await asyncio.wrap_future(outcome)
        found = await reader.json(url)
        assert found["partitions"][0]["committed"] == 4, "it stands where it stood"
        assert (found["partitions"][0]["needs"], found["is_passed"]) == (needs, not needs)


@pytest.mark.parametrize("at", ["x", "[]", "{}", '{"t":{"0":"x"}}', '{"t":{"0":-1}}', '{"t":1}'])
async def test_a_barrier_that_is_none_is_told(
    reader: Reader, place: TopicPartition, group: str, at: str
) -> None:
    answer = await reader.get(f"/barrier?group={group}&at={quote_plus(at)}")
    assert answer.status_code == 400
    assert "no barrier that this page has set" in answer.text


async def test_an_open_transaction_is_shown_with_its_partitions_and_at_its_topic(
    reader: Reader, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    name = f"till-<b>-{group}"
    producer = await asyncio.to_thread(
        open_transaction, cluster.bootstrap, name, place.topic, "in it"
    )
    url = f"/transactions.json?q={quote_plus(name)}"
    (row,) = (await reader.json(url))["transactions"]
    assert (row["state"], row["is_open"], row["is_overdue"]) == ("Ongoing", True, False)
    assert row["partitions"] == [f"{place.topic}-0"]
    first = (await reader.json(f"/topic.json?name={place.topic}"))["partitions"][0]
    assert first["open_transaction"]
    assert "till-&lt;b&gt;-" in (await reader.get(url.replace(".json", ""))).text
    await asyncio.to_thread(producer.abort_transaction, 60)
    reader.console.logins.ask_anew()
    (row,) = (await reader.json(url))["transactions"]
    assert not row["is_open"] or row["state"].startswith("Prepare")


async def test_quotas_are_shown_and_a_cluster_without_an_authorizer_is_told(
    reader: Reader, admin: Admin, group: str
) -> None:
    entity = {"user": f"user {group}", "client-id": None}
    await alter_quotas(admin.cluster, entity, {"producer_byte_rate": 1024.0})
    try:
        page = await reader.get(f"/access?q=*{group}*")
        assert f"user user {group}, client-id (default)" in page.text
        assert "producer_byte_rate" in page.text
        if not is_apache_kafka():
            assert "has no authorizer" in page.text
    finally:
        await alter_quotas(admin.cluster, entity, {}, ["producer_byte_rate"])


@pytest.mark.skipif(is_apache_kafka(), reason="the settings are ours")
async def test_access_control_lists_are_shown_in_words(deploy_fresh: Deploy) -> None:
    cluster = await asyncio.to_thread(
        deploy_fresh,
        1,
        {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
        },
    )
    entry = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "pay", PatternType.PREFIXED),
        Acl("User:<i>bob</i>", "*", Operation.READ, Permission.DENY),
    )
    async with Admin.of(cluster.bootstrap) as admin, reader_of(cluster.bootstrap) as reader:
        await admin.create_acls([entry])
        rows = (await reader.json("/access.json?q=*bob*"))["acls"]["rows"]
        assert rows == [
            {"principal": "User:<i>bob</i>", "host": "*", "operation": "READ",
             "permission": "DENY", "resource": "TOPIC", "name": "pay", "pattern": "PREFIXED"}
        ]  # fmt: skip
        assert "User:&lt;i&gt;bob&lt;/i&gt;" in (await reader.get("/access")).text
