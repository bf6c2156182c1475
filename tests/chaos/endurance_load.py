"""The clients of an endurance run: they remember what was acknowledged, and little else."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.confluent_client import Confluent
from tests.harness.raw_calls import (
    NO_ERROR,
    commit_offsets,
    fetch_offsets,
    find_coordinator,
)
from tests.harness.raw_connection import Address, Closed, RawConnection
from tests.harness.traffic import Activity, persistent_producer
from tests.harness.waiting import TooLate, eventually

COMPACTED: Final = "compacted"
KEPT: Final = "kept"
OFFSETS: Final = "committed"
PARTITIONS: Final = 4
KEYS: Final = 1_000
RECORD_BYTES: Final = 1_000
MEMBERS: Final = "members"
PROBE: Final = "probe"
_PACE_S: Final = 0.02
_BATCH: Final = 4
_PROBE_PACE_S: Final = 0.05
_COMMIT_PACE_S: Final = 0.004
_STAY_POLLS: Final = 100
_TOPICS: Final = {
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 18),
        "min.cleanable.dirty.ratio": "0.2",
    },
    KEPT: {"retention.bytes": str(1 << 20), "segment.bytes": str(1 << 18)},
    OFFSETS: {},
}


def create_topics(bootstrap: str) -> None:
    """Three replicas of each."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, PARTITIONS, 3, config=settings) for name, settings in _TOPICS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(60)


class Writer(Activity):
    """librdkafka, idempotent: numbered records with KEYS keys."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.sent: dict[int, int] = {}
        """The last number of each key."""
        self.acknowledged: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        """Where the last acknowledged record of each partition ends."""
        self.count = 0
        self.refused: list[str] = []
        self._topic = topic
        self._producer = persistent_producer(bootstrap, linger_ms=5)

    def repeat(self) -> None:
        number = 0
        while not self.is_over.is_set():
            for _ in range(_BATCH):
                key = number % KEYS
                self.sent[key] = number
                self._producer.produce(
                    self._topic,
                    key=b"%d" % key,
                    value=(b"%d" % number).ljust(RECORD_BYTES, b"."),
                    partition=key % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(_PACE_S)
            self.is_over.wait(_PACE_S)
        assert self._producer.flush(100) == 0, "records stay undelivered"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        self.count += 1
        key = int(message.key())
        self.acknowledged[key] = max(self.acknowledged.get(key, -1), number_of(message.value()))
        end = (message.offset() or 0) + 1
        index = message.partition()
        self.ends[index] = max(self.ends.get(index, 0), end)


class Commits(Activity):
    """Commits growing offsets of many groups, one after the other, to whoever coordinates them."""

    def __init__(self, addresses: Sequence[Address], groups: Sequence[str], pace_s: float) -> None:
        super().__init__()
        self.acknowledged: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.count = 0
        self._addresses = addresses
        self._groups = groups
        self._pace_s = pace_s
        self._coordinators: dict[str, Address] = {}
        self._links: dict[Address, RawConnection] = {}
        self._waits: list[float] = []
        self._lock = threading.Lock()

    def take_waits(self) -> list[float]:
        """How long each commit took since the last question, in seconds."""
        with self._lock:
            taken, self._waits = self._waits, []
        return taken

    def repeat(self) -> None:
        offset = 0
        try:
            while not self.is_over.is_set():
                offset += 1
                for group in self._groups:
                    if self.is_over.wait(self._pace_s):
                        return
                    self._commit(group, offset)
        finally:
            self._forget()

    def _commit(self, group: str, offset: int) -> None:
        """Until it is acknowledged; the wait is that of the client, all its tries included."""
        began = time.monotonic()
        self.sent[group] = offset
        while not self.is_over.is_set():
            try:
                code = commit_offsets(self._link(group), group, OFFSETS, {0: offset})[0]
            except (Closed, OSError):
                self._forget()
                code = None
            if code == NO_ERROR:
                self.acknowledged[group] = offset
                self.count += 1
                with self._lock:
                    self._waits.append(time.monotonic() - began)
                return
            self._coordinators.pop(group, None)
            self.is_over.wait(_PACE_S)

    def _link(self, group: str) -> RawConnection:
        address = self._coordinators.get(group)
        if address is None:
            address = self._find(group)
            self._coordinators[group] = address
        if address not in self._links:
            self._links[address] = RawConnection(address, 5.0)
        return self._links[address]

    def _find(self, group: str) -> Address:
        for address in self._addresses:
            try:
                with RawConnection(address, 5.0) as link:
                    found = find_coordinator(link, group)
            except (Closed, OSError):
                continue
            if found.error == NO_ERROR:
                return found.host, found.port
        raise Closed("nobody knows the coordinator")

    def _forget(self) -> None:
        """Every connection, and whoever coordinated: one of the nodes is gone."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._coordinators.clear()


class Reader(Activity):
    """A member of a group that reads and commits; one that does not stay leaves and comes again."""

    def __init__(self, bootstrap: str, *, stays: bool) -> None:
        super().__init__()
        self.count = self.joined = 0
        self._bootstrap = bootstrap
        self._stays = stays

    def repeat(self) -> None:
        while not self.is_over.is_set():
            self._take_part()

    def _take_part(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": MEMBERS,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        consumer.subscribe([KEPT])
        self.joined += 1
        try:
            polls = 0
            while not self.is_over.is_set() and (self._stays or polls < _STAY_POLLS):
                polls += 1
                good = [one for one in consumer.consume(200, timeout=0.1) if one.error() is None]
                self.count += len(good)
                if good:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            return  # a rebalance, or a node that went: what was read comes again


class EnduranceLoad:
    """All clients, and the verdict on what they were told."""

    def __init__(self, addresses: Sequence[Address], bootstrap: str, groups: int) -> None:
        names = [f"group-{number}" for number in range(groups)]
        self._addresses = addresses
        self._left = 0
        """Records in the compacted topic at the end."""
        self._writers = {topic: Writer(bootstrap, topic) for topic in (COMPACTED, KEPT)}
        self._commits = Commits(addresses, names, _COMMIT_PACE_S)
        self._probe = Commits(addresses, [PROBE], _PROBE_PACE_S)
        self._readers = [Reader(bootstrap, stays=stays) for stays in (True, True, False)]
        self.activities: list[Activity] = [
            *self._writers.values(),
            self._commits,
            self._probe,
            *self._readers,
        ]

    def check(self) -> None:
        """Raise what ended a client before its time."""
        for activity in self.activities:
            activity.check()

    def take_waits(self) -> list[float]:
        """How long the probe's commits took since the last question, in seconds."""
        return self._probe.take_waits()

    def counts(self) -> dict[str, int]:
        """How much was done."""
        return {
            "commits acknowledged": self._commits.count + self._probe.count,
            "records acknowledged": sum(one.count for one in self._writers.values()),
            "records received": sum(one.count for one in self._readers),
            "members that joined": sum(one.joined for one in self._readers),
        }

    def findings(self, bootstrap: str) -> list[str]:
        """Everything that must not be; asked when the load has ended."""
        found = [f"refused: {one}" for writer in self._writers.values() for one in writer.refused]
        for commits in (self._commits, self._probe):
            for group, acknowledged in commits.acknowledged.items():
                now = self._committed(group)
                if not acknowledged <= now <= commits.sent[group]:
                    found.append(f"{group} committed {acknowledged}, there is {now}")
        return found + self._lost_keys(bootstrap)

    def removed(self, bootstrap: str) -> dict[str, int]:
        """How many records compaction and retention did away with."""
        return {
            "records compacted": sum(self._writers[COMPACTED].ends.values()) - self._left,
            "records beyond retention": sum(first_offsets(bootstrap, KEPT)),
        }

    def _lost_keys(self, bootstrap: str) -> list[str]:
        """Keys whose newest record compaction, or a restart, did away with."""
        writer = self._writers[COMPACTED]
        newest: dict[int, int] = {}
        everything = dict.fromkeys(range(PARTITIONS), "beginning")
        rows = Confluent().read(bootstrap, COMPACTED, everything)
        self._left = len(rows)
        for one in rows:
            newest[int(one.key or b"0")] = number_of(one.value or b"-1")
        return [
            f"key {key}: {acknowledged} was acknowledged, there is {newest.get(key)}"
            for key, acknowledged in writer.acknowledged.items()
            if not acknowledged <= newest.get(key, -1) <= writer.sent[key]
        ]

    def _committed(self, group: str) -> int:
        said: list[str] = []

        def ask() -> list[int]:
            said.clear()
            for address in self._addresses:
                try:
                    with RawConnection(address) as link:
                        at = find_coordinator(link, group)
                    said.append(f"{address} names {at}")
                    if at.error != NO_ERROR:
                        continue
                    with RawConnection((at.host, at.port)) as link:
                        offsets, code = fetch_offsets(link, group, OFFSETS, [0])
                    said.append(f"which says {code}")
                except (Closed, OSError) as error:
                    said.append(f"{address}: {error!r}")
                    continue
                if code == NO_ERROR:
                    return [offsets[0].offset]
            return []

        try:
            return eventually(ask, within_s=60.0, what=f"what {group} committed")[0]
        except TooLate as late:
            raise TooLate(f"{late}; {said}") from late


def first_offsets(bootstrap: str, topic: str) -> list[int]:
    """Where each partition's log begins."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": MEMBERS, "log_level": 2})
    try:
        topic_partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return [
            consumer.get_watermark_offsets(topic_partition, timeout=60)[0]
            for topic_partition in topic_partitions
        ]
    finally:
        consumer.close()


def number_of(value: bytes) -> int:
    """Of a record of ours."""
    return int(value.rstrip(b"."))
