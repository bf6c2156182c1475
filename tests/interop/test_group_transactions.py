"""Offsets inside transactions, and the commands that change groups (docs/groups.md).

Source: docs/spec/transactions.md §4, checks T4.3, T4.4 and T4.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas import client
from barnabas.console.development.cluster import Cluster
from tests.harness.group_shell import GroupShell
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

WAIT_S = 120.0
TIMEOUT_MS = 600_000
"""No transaction is to end by itself while commands run on a busy machine."""


class Copier:
    """A transactional producer that commits offsets for a group without members."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"copy-{group}",
                "transaction.timeout.ms": TIMEOUT_MS,
            }
        )
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        self._producer.init_transactions(WAIT_S)

    def stage(self, topic: str, offsets: dict[int, int]) -> None:
        """Begin a transaction and put offsets into it."""
        self._producer.begin_transaction()
        self.send(topic, offsets)

    def send(self, topic: str, offsets: dict[int, int]) -> None:
        """Put offsets into the transaction."""
        self._producer.send_offsets_to_transaction(
            [TopicPartition(topic, index, offset) for index, offset in offsets.items()],
            self._consumer.consumer_group_metadata(),
            WAIT_S,
        )

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def copier(groups: GroupShell, group: str) -> Iterator[Copier]:
    made = Copier(groups.bootstrap, group)
    yield made
    made.close()


def is_served(groups: GroupShell, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Wait for the marker: the end of a transaction is answered before it is everywhere."""
    eventually(lambda: groups.committed(group) == offsets, what=f"{group} is at {offsets}")


def test_commands_refuse_what_an_open_transaction_holds_and_work_when_it_has_ended(
    groups: GroupShell, filled: str, group: str, copier: Copier
) -> None:
    groups.commit(group, filled, [1, 2])
    copier.stage(filled, {0: 5})
    words = f"Consumer group '{group}' has offsets in an open transaction: {filled}-0."
    for command in (
        ("reset", group, "--topic", filled, "--to-offset", "3"),
        ("forget", group, "--topic", filled),
        ("delete", group),
        ("clone", group, f"{group}-copy"),
        ("clone", f"{group}-copy", group),
    ):
        if command[:2] == ("clone", f"{group}-copy"):
            groups.commit(f"{group}-copy", filled, [7, 7])
        refused = groups.json(*command, "--execute", code=1)["refused"]
        assert [row["error"][: len(words)] for row in refused] == [words], command
    assert groups.committed(group) == {(filled, 0): 1, (filled, 1): 2}
    groups("reset", group, "--topic", f"{filled}:1", "--to-offset", "3", "--execute")
    copier.commit()
    is_served(groups, group, {(filled, 0): 5, (filled, 1): 3})
    groups("reset", group, "--topic", filled, "--to-offset", "4", "--execute")
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 4}


def test_a_transaction_that_is_aborted_changes_nothing_and_holds_nothing(
    groups: GroupShell, filled: str, group: str, copier: Copier
) -> None:
    groups.commit(group, filled, [1, 2])
    copier.stage(filled, {0: 5, 1: 6})
    copier.abort()

    def is_free() -> bool:
        return not groups.json("reset", group, "--topic", filled, "--to-offset", "3", code=None)[
            "refused"
        ]

    eventually(is_free, what="the marker is everywhere")
    assert groups.committed(group) == {(filled, 0): 1, (filled, 1): 2}


def test_five_transactions_in_a_row_are_each_served_with_their_own_offsets(
    groups: GroupShell, filled: str, group: str, copier: Copier
) -> None:
    """T4.8 (KAFKA-17507): none is mixed with the next."""
    for number in range(5):
        copier.stage(filled, {0: 2 * number, 1: 2 * number + 1})
        if number % 2:
            copier.abort()
        else:
            copier.commit()
    is_served(groups, group, {(filled, 0): 8, (filled, 1): 9})


def test_a_commit_of_another_tool_between_record_and_marker_stays(
    groups: GroupShell, filled: str, group: str, copier: Copier
) -> None:
    """T4.4: our coordinator refuses only tools that call themselves ours."""
    groups.commit(group, filled, [1, 2])
    copier.stage(filled, {0: 5, 1: 6})
    admin = AdminClient({"bootstrap.servers": groups.bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 0)])
    admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S)
    copier.commit()
    is_served(groups, group, {(filled, 0): 0, (filled, 1): 6})


async def test_staged_offsets_outlive_the_kill_of_their_coordinator() -> None:
    """T8.19: the transaction goes on at the next coordinator, and is served there.

    With our own producer. librdkafka 2.16 waits for ever when both coordinators were on the node
    that is gone: it gives up the broker's handle that it keeps as the group's coordinator.
    """
    settings = {
        **STEADY,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
    }
    config = client.ProducerConfig(transactional_id="copy", transaction_timeout_ms=TIMEOUT_MS)
    first, second = client.TopicPartition("t", 0), client.TopicPartition("t", 1)
    member = client.GroupMetadata("g")
    async with Cluster(3, settings=settings) as nodes, client.Admin.of(nodes.bootstrap) as admin:
        await admin.create_topics([client.NewTopic(name="t", partitions=2)])
        async with (
            client.Producer(nodes.bootstrap, config) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send_offsets(member, {first: 5})
            killed = await admin.cluster.coordinator_of("g")
            await asyncio.to_thread(nodes.kill, killed.id)
            assert await admin.unstable_offsets("g", [first]) == [first]
            await transaction.send_offsets(member, {second: 6})
        async with asyncio.timeout(WAIT_S):
            while await admin.unstable_offsets("g", [first, second]):
                pass  # each look waits by itself
        served = await admin.committed_offsets("g")
        assert {place.partition: found.offset for place, found in served.items()} == {0: 5, 1: 6}
