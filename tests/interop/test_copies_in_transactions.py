"""Clients that nobody here wrote copy a topic exactly once while their group rebalances.

BARNABAS_INTEROP_SERVER=kafka runs it against Apache Kafka, which must pass it as well.
Source: docs/spec/transactions.md §2, §4 and §7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import kafka
import pytest

from tests.harness.committed_readers import READERS
from tests.harness.confluent_client import Confluent
from tests.harness.copiers import (
    AIOKAFKA_COPIER,
    FRANZ_COPIER,
    JAVA_COPIERS,
    SARAMA_COPIER,
    Copied,
    Copier,
    CopierKind,
    CopyTask,
)
from tests.harness.deployments import Deployment, create_topic
from tests.harness.records import Sent
from tests.harness.waiting import eventually

PARTITIONS = 4
PORTION = 340
"""Three of them are copied: by one, by two, and after one of the two was replaced."""
SHARES_S = 120.0
LIBRARY = Confluent()


def copier(kind: CopierKind, balancer: str = "range", *, nightly: bool = False) -> Any:
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param((kind, balancer), id=f"{kind.name}-{balancer}", marks=marks)


COPIERS = [
    copier(FRANZ_COPIER),
    copier(FRANZ_COPIER, "cooperative", nightly=True),
    copier(JAVA_COPIERS[1]),
    copier(JAVA_COPIERS[1], "cooperative", nightly=True),
    copier(JAVA_COPIERS[0], nightly=True),
    copier(SARAMA_COPIER, nightly=True),
    copier(SARAMA_COPIER, "sticky", nightly=True),
    copier(AIOKAFKA_COPIER),
]

EACH_CLIENT = [
    pytest.param((kind, "range"), id=kind.name)
    for kind in (FRANZ_COPIER, *JAVA_COPIERS, SARAMA_COPIER, AIOKAFKA_COPIER)
]


class Copying:
    """A group of copiers of one kind, and what it has to copy."""

    def __init__(
        self, cluster: Deployment, kind: CopierKind, topic: str, group: str, balancer: str
    ) -> None:
        self.cluster = cluster
        self.kind = kind
        self.source, self.target, self.group = topic, f"{topic}-copy", group
        self._balancer = balancer
        self._started: list[Copier] = []
        self._sent: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        for name in (self.source, self.target):
            create_topic(cluster, LIBRARY, name, PARTITIONS, 3)

    def task(self, producer: str) -> CopyTask:
        names = (self.source, self.target, self.group, f"{self.group}-{producer}")
        return CopyTask(self.cluster.bootstrap, *names, self._balancer)

    def start(self, producer: str) -> Copier:
        self._started.append(self.kind.start(self.task(producer)))
        return self._started[-1]

    def produce(self, count: int = PORTION) -> None:
        records: list[Sent] = []
        for number in range(count):
            values = self._sent[number % PARTITIONS]
            values.append(b"%d" % len(values))
            records.append(Sent(values[-1], partition=number % PARTITIONS))
        LIBRARY.produce(self.cluster.bootstrap, self.source, records)

    def is_copied(self) -> bool:
        """The group has committed the end of each partition."""
        committed = LIBRARY.committed(self.cluster.bootstrap, self.group)
        return committed == {partition: len(sent) for partition, sent in self._sent.items()}

    def verify(self) -> None:
        """Each record is read once, in order; each partition by another library."""
        ends = eventually(self._stable_ends, what="all transactions are ended")
        assert ends is not None
        for partition, values in self._sent.items():
            reader = READERS[partition % len(READERS)]
            place = (self.target, partition, "read_committed", ends[partition])
            rows = reader(self.cluster.bootstrap, *place)
            assert [value for _, value in rows] == values

    def _stable_ends(self) -> dict[int, int] | None:
        """The ends of the target's partitions, once no transaction is open there."""
        places = [kafka.TopicPartition(self.target, number) for number in range(PARTITIONS)]
        ends = []
        for level in ("read_committed", "read_uncommitted"):
            consumer = kafka.KafkaConsumer(
                bootstrap_servers=self.cluster.bootstrap, isolation_level=level
            )
            found = consumer.end_offsets(places)
            ends.append({place.partition: end for place, end in found.items()})
            consumer.close()
        return ends[1] if ends[0] == ends[1] else None

    def end(self) -> None:
        for copier in self._started:
            if copier.is_running:
                copier.kill()


@pytest.fixture
def copying(
    request: pytest.FixtureRequest, cluster: Deployment, topic: str, group: str
) -> Iterator[Copying]:
    kind, balancer = request.param
    made = Copying(cluster, kind, topic, group, balancer)
    yield made
    made.end()


def copied(copier: Copier) -> Copied:
    """One step, which nothing may keep from ending well."""
    done = copier.do("copy")
    assert not done.error, done.error
    return done


def until_it_reads(copier: Copier, order: str) -> Copied:
    """The step with something in it."""

    def step() -> Copied | None:
        done = copier.do(order)
        assert not done.error, done.error
        return done if done.read else None

    found = eventually(step, within_s=SHARES_S, what=f"{order} with records")
    assert found is not None
    return found


def until_it_commits(copier: Copier) -> None:
    """After a rebalance a client may abort its first transaction, and read once more."""
    eventually(lambda: copied(copier).is_committed, within_s=SHARES_S, what="it commits")


def share(*copiers: Copier) -> None:
    """Copy until the group has settled on who has what."""

    def is_shared() -> bool:
        for copier in copiers:
            copied(copier)
        owned = [partition for copier in copiers for partition in copier.assigned]
        return all(one.assigned for one in copiers) and sorted(owned) == list(range(PARTITIONS))

    eventually(is_shared, within_s=SHARES_S, what=f"{len(copiers)} share")


def copy_all(copying: Copying, *copiers: Copier) -> None:
    def is_done() -> bool:
        did = [copied(copier) for copier in copiers]
        return not any(one.read for one in did) and copying.is_copied()

    eventually(is_done, within_s=SHARES_S, what="all is copied")


@pytest.mark.parametrize("copying", COPIERS, indirect=True)
def test_a_group_copies_each_record_once_while_members_join_leave_and_are_fenced(
    copying: Copying,
) -> None:
    copying.produce()
    first = copying.start("one")
    assert not until_it_reads(first, "abort").is_committed
    copy_all(copying, first)

    second = copying.start("two")
    copying.produce()
    share(first, second)
    copying.produce()
    until_it_commits(second)
    opened = until_it_reads(first, "open")
    copying.kind.fence(replace(copying.task("one"), producer=opened.transactional_id))
    fenced = first.do("end")
    assert not fenced.is_committed
    assert re.search(copying.kind.fenced, fenced.error)
    first.close()
    copy_all(copying, second)

    third = copying.start("one")
    share(second, third)
    copying.produce(PARTITIONS * 10)
    for copier in (second, third):
        until_it_commits(copier)
    copy_all(copying, second, third)
    for copier in (second, third):
        copier.close()
    assert copying.is_copied()
    copying.verify()


@pytest.mark.nightly
@pytest.mark.parametrize("copying", EACH_CLIENT, indirect=True)
def test_what_a_killed_member_left_open_is_copied_once_by_those_that_follow(
    copying: Copying,
) -> None:
    copying.produce()
    first, second = copying.start("one"), copying.start("two")
    share(first, second)
    for producer in ("one", "three"):
        copying.produce()
        until_it_reads(first, "open")
        first.kill()
        first = copying.start(producer)
        share(first, second)
        copy_all(copying, first, second)
    for copier in (first, second):
        copier.close()
    copying.verify()
