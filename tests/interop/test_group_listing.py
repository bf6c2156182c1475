"""Admin clients see groups as their members left them."""

from __future__ import annotations

from functools import partial

from tests.harness.client_libraries import ClientLibrary
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES
from tests.harness.records import GroupDescription, Sent
from tests.harness.waiting import eventually


def stable(admin: ClientLibrary, bootstrap: str, group: str) -> GroupDescription | None:
    """The group once its members have settled: they may have shares before they rest."""
    described = admin.describe_group(bootstrap, group)
    return described if described.state == "Stable" else None


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
        assert admin.describe_group(bootstrap, group).state == "Empty", admin.name
        assert admin.committed(bootstrap, group) == {0: 3, 1: 4}, admin.name
