"""Admin clients see groups as their members left them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from tests.harness.client_libraries import ClientLibrary
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES
from tests.harness.go_clients import FRANZ
from tests.harness.records import GroupDescription, Sent
from tests.harness.waiting import eventually


def stable(admin: ClientLibrary, bootstrap: str, group: str) -> GroupDescription | None:
    """The group once its members have settled: they may have shares before they rest."""
    described = admin.describe_group(bootstrap, group)
    return described if described.state == "Stable" else None


def is_empty(admin: ClientLibrary, bootstrap: str, group: str) -> bool:
    """Its members have left: a client may be closed before its last request is answered."""
    return admin.describe_group(bootstrap, group).state == "Empty"


def test_a_group_is_listed_described_and_its_offsets_are_shown(
    cluster: Deployment, library: ClientLibrary, topic: str, group: str
) -> None:
    bootstrap = cluster.bootstrap
    create_topic(cluster, library, topic, 2)
    sent = [Sent(b"x", partition=0)] * 3 + [Sent(b"y", partition=1)] * 4
    with ConsumerGroup(library, bootstrap, group, topic, members=2) as members:
        members.await_shares(2)
        for admin in LIBRARIES:
            described = eventually(partial(stable, admin, bootstrap, group), what=admin.name)
            assert described is not None, admin.name
            assert described.member_count == 2, admin.name
            assert described.protocol in ("range", "roundrobin", "sticky"), admin.name
            assert group in admin.groups(bootstrap), admin.name
        library.produce(bootstrap, topic, sent)
        members.read(len(sent))
    for admin in LIBRARIES:
        eventually(partial(is_empty, admin, bootstrap, group), what=f"{admin.name} sees nobody")
        assert admin.committed(bootstrap, group) == {0: 3, 1: 4}, admin.name


def with_confluent(bootstrap: str, kind: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kinds = {ConsumerGroupType[kind]}
    found = admin.list_consumer_groups(types=kinds).result(90).valid
    assert {group.type for group in found} <= kinds
    return {group.group_id for group in found}


def with_kafka_python(bootstrap: str, kind: str) -> set[str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return {group["group_id"] for group in admin.list_groups(types_filter=[kind.lower()])}
    finally:
        admin.close()


@pytest.mark.parametrize("listed", [with_confluent, with_kafka_python])
def test_groups_are_listed_by_their_type(
    cluster: Deployment, listed: Callable[[str, str], set[str]], topic: str, group: str
) -> None:
    create_topic(cluster, FRANZ, topic, 1)
    FRANZ.commit(cluster.bootstrap, group, topic, {0: 0})
    assert group in listed(cluster.bootstrap, "CLASSIC")
    assert group not in listed(cluster.bootstrap, "CONSUMER")
