"""Traffic that goes on while nodes die: it remembers what was acknowledged and what it was told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.raw_connection import Address, Closed, RawConnection

from .coordinators import coordinator
from .deployments import Deployment
from .raw_calls import NO_ERROR, commit_offsets, fetch_offsets

RETRY_S = 0.02
END_S = 240.0
"""Longer than a client's own wait for its last answers."""
MOST_WAITING = 20_000
"""Records that wait at most for nodes that are away; librdkafka's queue holds five times that."""


def persistent_producer(bootstrap: str, linger_ms: int) -> Producer:
    """An idempotent producer of librdkafka that looks for its nodes again and again."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 2,
        }
    )


class Activity:
    """Repeats a step in a thread of its own until it is stopped; its failure comes out there."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_over.set()
        self._thread.join(END_S)
        assert not self._thread.is_alive(), "the traffic does not stop"
        if self._failure is not None and error is None:
            raise self._failure

    def check(self) -> None:
        """Raise what ended the repetition before its time, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self.repeat()
        except BaseException as failure:  # noqa: BLE001 - raised again in the test's thread
            self._failure = failure

    def repeat(self) -> None:
        """What the thread does."""
        raise NotImplementedError


class IdempotentProducer(Activity):
    """librdkafka, sending numbered records until stopped, through every failure."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.acknowledged: dict[bytes, tuple[int, int | None]] = {}
        """Partition and offset of every value that was acknowledged; no offset where librdkafka
        learned it from the acknowledgement of a later one."""
        self.refused: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = persistent_producer(bootstrap, linger_ms=2)

    def repeat(self) -> None:
        number = 0
        while not self.is_over.is_set():
            room = min(20, MOST_WAITING - len(self._producer))
            for _ in range(room):
                self._producer.produce(
                    self._topic,
                    value=b"%d" % number,
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0.01)
        assert self._producer.flush(100) == 0, "records stay undelivered"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] = (message.partition(), message.offset())
        else:
            self.refused.append(str(error))


class PatientCommitter(Activity):
    """Commits growing offsets of one group through librdkafka, whoever coordinates it."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: Any) -> None:
        """``settings`` with an underscore for each dot, as librdkafka has them."""
        super().__init__()
        self.acknowledged = self.sent = -1
        self.worst_s = 0.0
        """The longest time between two acknowledged commits."""
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "log_level": 2,
                **{name.replace("_", "."): text for name, text in settings.items()},
            }
        )

    def repeat(self) -> None:
        last = time.monotonic()
        while not self.is_over.is_set():
            self.sent += 1
            wanted = TopicPartition(self._topic, 0, self.sent)
            with contextlib.suppress(KafkaException):
                [done] = self._consumer.commit(offsets=[wanted], asynchronous=False)
                if done.error is None:
                    self.acknowledged = self.sent
                    self.worst_s = max(self.worst_s, time.monotonic() - last)
                    last = time.monotonic()
            time.sleep(0.005)
        self._consumer.close()


class Committer(Activity):
    """Commits growing offsets of many groups, one after the other, until the coordinator dies."""

    def __init__(self, cluster: Deployment, groups: Sequence[str], topic: str) -> None:
        super().__init__()
        self.acknowledged: dict[str, int] = dict.fromkeys(groups, -1)
        self.sent: dict[str, int] = dict.fromkeys(groups, -1)
        self._topic = topic
        self._cluster = cluster
        self._links: dict[Address, RawConnection] = {}

    def repeat(self) -> None:
        coordinators = {
            group: coordinator(self._cluster.addresses, group) for group in self.acknowledged
        }
        self._links = {address: RawConnection(address) for address in set(coordinators.values())}
        offset = 0
        try:
            while not self.is_over.is_set():
                for group, address in coordinators.items():
                    self._commit(self._links[address], group, offset)
                offset += 1
        except (Closed, OSError):
            return  # the node was killed
        finally:
            for link in self._links.values():
                link.close()

    def _commit(self, link: RawConnection, group: str, offset: int) -> None:
        self.sent[group] = offset
        if commit_offsets(link, group, self._topic, {0: offset}) == {0: NO_ERROR}:
            self.acknowledged[group] = offset


class OffsetReader(Activity):
    """Asks one node for committed offsets without rest, and keeps every kind of answer."""

    def __init__(self, address: Address, groups: Sequence[str], topic: str) -> None:
        super().__init__()
        self.codes: Counter[int] = Counter()
        """How often each code came for a group as a whole."""
        self.offsets: list[tuple[str, int]] = []
        """Every offset that came without an error, and whose it is."""
        self._address = address
        self._groups = groups
        self._topic = topic

    def repeat(self) -> None:
        while not self.is_over.is_set():
            try:
                with RawConnection(self._address) as link:
                    self._ask(link)
            except (OSError, Closed):
                self.is_over.wait(RETRY_S)

    def _ask(self, link: RawConnection) -> None:
        while not self.is_over.is_set():
            for group in self._groups:
                found, code = fetch_offsets(link, group, self._topic, [0])
                self.codes[code] += 1
                if code == NO_ERROR:
                    assert found[0].error == NO_ERROR
                    self.offsets.append((group, found[0].offset))
