"""librdkafka with ``group.protocol=consumer`` at three nodes of ours: the partitions that members
get, and that none of what they committed is lost when their coordinator is killed.

Source: docs/spec/consumer-groups.md §7; docs/spec/coordinator.md §3.4.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.bulk_group_admin import BulkGroupAdmin, GroupStatus
from barnabas.client.admin.descriptions import GroupDescription
from barnabas.client.errors import KafkaError as KafkaRefusal
from tests.harness.confluent_client import WAIT_S, Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment
from tests.harness.fixtures import Deploy
from tests.harness.raw_connection import addresses_of
from tests.harness.records import numbered
from tests.harness.waiting import TooLate, eventually

PARTITIONS = 6
LIBRARY = Confluent()
ASKED_AGAIN = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
)
"""Ends of a commit after which a client asks again: nothing is wrong with the member."""


class Member:
    """A consumer that notes what it is assigned, as librdkafka tells it."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.owned: set[int] = set()
        self.values: list[bytes] = []
        self._is_eager = settings.get("partition.assignment.strategy") == "range"
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {partition.partition for partition in partitions}
        if self._is_eager:
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {partition.partition for partition in partitions}
        if self._is_eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)

    def poll(self) -> None:
        """Take what is there, and commit the last of it."""
        read = [found for found in self._consumer.consume(200, 0.1) if found.error() is None]
        self.values += [message.value() or b"" for message in read]
        last = {message.partition(): message for message in read}
        for message in last.values():
            self._consumer.commit(message=message, asynchronous=True)

    def commit(self) -> None:
        """Where it is, for good; asked again while the group's coordinator moves and loads."""
        positions = self._consumer.position(self._consumer.assignment())
        known = [position for position in positions if position.offset >= 0]
        if known:
            eventually(lambda: self._is_committed(known), within_s=WAIT_S)

    def _is_committed(self, known: list[TopicPartition]) -> bool:
        try:
            self._consumer.commit(offsets=known, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in ASKED_AGAIN:
                raise
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


def await_shares(members: list[Member], *sizes: int) -> None:
    """Until members have so many partitions, all of them together and each one once."""

    def are_shared() -> bool:
        for member in members:
            member.poll()
        found = [partition for member in members for partition in member.owned]
        shares = sorted(len(member.owned) for member in members)
        return sorted(found) == list(range(PARTITIONS)) and shares == sorted(sizes)

    try:
        eventually(are_shared, within_s=WAIT_S, what=f"shares of {sizes}")
    except TooLate as late:
        raise AssertionError(f"{late}: {[sorted(member.owned) for member in members]}") from late


def await_values(members: list[Member], count: int, closed: Sequence[Member] = ()) -> None:
    """Until so many different records were read, with those that closed members had read."""

    def is_read() -> bool:
        for member in members:
            member.poll()
        return len({value for member in [*members, *closed] for value in member.values}) >= count

    eventually(is_read, within_s=WAIT_S, what=f"{count} records")


def await_committed(members: list[Member], bootstrap: str, group: str, count: int) -> None:
    """Until the group has committed so much. A commit that a member sends without waiting may be
    refused while partitions move: whoever has the partition afterwards reads it again.
    """

    def are_committed() -> bool:
        for member in members:
            member.poll()
            member.commit()
        return sum(LIBRARY.committed(bootstrap, group).values()) == count

    eventually(are_committed, within_s=WAIT_S, what=f"{count} records are committed")


@pytest.fixture
def written(cluster: Deployment, topic: str) -> str:
    LIBRARY.create_topic(cluster.bootstrap, topic, PARTITIONS)
    LIBRARY.produce(cluster.bootstrap, topic, numbered(0, 600))
    return topic


def test_members_share_the_partitions_and_read_every_record(
    cluster: Deployment, written: str, group: str
) -> None:
    first = Member(cluster.bootstrap, group, written)
    await_shares([first], 6)
    second = Member(cluster.bootstrap, group, written)
    await_shares([first, second], 3, 3)
    third = Member(cluster.bootstrap, group, written)
    await_shares([first, second, third], 2, 2, 2)
    await_values([first, second, third], 600)
    # Members have what they were given before the coordinator has heard so.
    eventually(lambda: described(cluster.bootstrap, group) == ("STABLE", 3), what="all have it")
    second.close()
    await_shares([first, third], 3, 3)
    await_committed([first, third], cluster.bootstrap, group, 600)
    first.close()
    third.close()
    assert sum(LIBRARY.committed(cluster.bootstrap, group).values()) == 600


def test_an_expression_and_the_range_assignor(
    cluster: Deployment, written: str, group: str
) -> None:
    settings = {"group.remote.assignor": "range"}
    members = [Member(cluster.bootstrap, group, f"^{written[:-1]}.*", **settings) for _ in range(2)]
    await_shares(members, 3, 3)
    assert {frozenset(member.owned) for member in members} == {
        frozenset({0, 1, 2}),
        frozenset({3, 4, 5}),
    }
    for member in members:
        member.close()


def test_a_static_member_that_restarts_gets_back_what_it_had(
    cluster: Deployment, written: str, group: str
) -> None:
    first = Member(cluster.bootstrap, group, written)
    static = Member(cluster.bootstrap, group, written, **{"group.instance.id": "i"})
    await_shares([first, static], 3, 3)
    before = set(static.owned)
    static.close()
    again = Member(cluster.bootstrap, group, written, **{"group.instance.id": "i"})
    await_shares([first, again], 3, 3)
    assert again.owned == before
    first.close()
    again.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_an_application_is_rolled_to_the_new_protocol_and_back(
    cluster: Deployment, written: str, group: str, strategy: str
) -> None:
    """C53, C54: members of both protocols share the partitions meanwhile."""
    classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    old = [Member(cluster.bootstrap, group, written, **classic) for _ in range(2)]
    await_shares(old, 3, 3)
    first = Member(cluster.bootstrap, group, written)
    await_shares([*old, first], 2, 2, 2)
    old[0].close()
    await_shares([old[1], first], 3, 3)
    again = Member(cluster.bootstrap, group, written, **classic)
    await_shares([old[1], first, again], 2, 2, 2)
    first.close()
    await_shares([old[1], again], 3, 3)
    members = [*old, first, again]
    await_values([old[1], again], 600, closed=[old[0], first])
    await_committed([old[1], again], cluster.bootstrap, group, 600)
    for member in (old[1], again):
        member.commit()
        member.close()
    values = {value for member in members for value in member.values}
    assert values == {record.value for record in numbered(0, 600)}
    assert sum(LIBRARY.committed(cluster.bootstrap, group).values()) == 600


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_coordinator_that_is_killed_loses_no_member_and_no_offset(
    deploy_fresh: Deploy, topic: str, group: str, nodes: int
) -> None:
    cluster = deploy_fresh(nodes)
    LIBRARY.create_topic(cluster.bootstrap, topic, PARTITIONS, factor=nodes)
    LIBRARY.produce(cluster.bootstrap, topic, numbered(0, 300))
    members = [Member(cluster.bootstrap, group, topic) for _ in range(2)]
    await_shares(members, 3, 3)
    await_values(members, 300)
    shares = [set(member.owned) for member in members]
    for member in members:
        member.commit()
    place = coordinator(addresses_of(cluster.bootstrap), group)
    victim = list(cluster.addresses).index(place)
    if nodes == 1:
        cluster.kill_all()
        cluster.start_all()
    else:
        os.kill(cluster.pids[victim], signal.SIGKILL)
    left = ",".join(
        f"{host}:{port}"
        for index, (host, port) in enumerate(cluster.addresses)
        if nodes == 1 or index != victim
    )
    LIBRARY.produce(left, topic, numbered(300, 300))
    await_values(members, 600)
    assert [member.owned for member in members] == shares
    for member in members:
        member.commit()
        member.close()
    assert sum(LIBRARY.committed(left, group).values()) == 600


def test_our_administrator_describes_such_a_group_alone_and_among_others(
    cluster: Deployment, written: str, group: str
) -> None:
    member = Member(cluster.bootstrap, group, written)
    await_shares([member], PARTITIONS)
    eventually(lambda: described(cluster.bootstrap, group) == ("STABLE", 1), what="it has all")

    async def ask() -> tuple[GroupDescription, Mapping[str, GroupStatus | KafkaRefusal]]:
        async with Admin.of(cluster.bootstrap) as admin:
            names = [group, f"{group}-none"]
            return await admin.describe_group(group), await BulkGroupAdmin(admin).states(names)

    alone, among = asyncio.run(ask())
    member.close()
    (of_member,) = alone.members
    assert (alone.state, alone.protocol_type) == ("Stable", "consumer")
    assert [each.partition for each in of_member.assignment] == list(range(PARTITIONS))
    assert among == {group: GroupStatus("Stable", 1), f"{group}-none": GroupStatus("Dead", 0)}


def described(bootstrap: str, group: str) -> tuple[str, int]:
    """State and number of members, as tools are told."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    return found.state.name, len(found.members)
