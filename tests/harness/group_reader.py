"""A member of a group that reads and commits while its coordinator moves from node to node."""

from __future__ import annotations

import contextlib
from collections import Counter

from confluent_kafka import Consumer, KafkaException

from .traffic import Activity

BATCH = 500
POLL_S = 0.1


class GroupReader(Activity):
    """Implements Activity: reads a topic as a lone member, commits what it read, and goes on."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self.values: set[bytes] = set()
        """Everything that was read, once or more often."""
        self.partitions: Counter[int] = Counter()
        """How many of each partition."""
        self.commits = 0
        """How many were acknowledged."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "log_level": 2,
            }
        )
        self._consumer.subscribe([topic])

    def repeat(self) -> None:
        while not self.is_over.is_set():
            found = [one for one in self._consumer.consume(BATCH, POLL_S) if one.error() is None]
            self.values.update(one.value() or b"" for one in found)
            self.partitions.update(one.partition() or 0 for one in found)
            if found:
                with contextlib.suppress(KafkaException):
                    done = self._consumer.commit(asynchronous=False)
                    self.commits += all(place.error is None for place in done)
        self._consumer.close()
