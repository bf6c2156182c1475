"""A member of a group that must notice nothing: it heartbeats, commits, and keeps its group."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from .waiting import eventually

PAUSE_S: Final = 0.05
JOIN_S: Final = 120.0


class Witness(threading.Thread):
    """librdkafka in a thread; ``settings`` say where and how it logs in."""

    def __init__(self, settings: dict[str, Any], topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._consumer = Consumer(
            {
                **settings,
                "group.id": group,
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 500,
            }
        )
        self._is_over = threading.Event()
        self.assignments = self.losses = self.commits = 0
        self.longest_s = 0.0
        self.problems: list[str] = []

    def __enter__(self) -> Witness:
        self.start()
        eventually(lambda: self.commits or self.problems, within_s=JOIN_S, what="a first commit")
        self.longest_s = 0.0
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self.join(JOIN_S)

    def check(self) -> None:
        """It was never disturbed, and is not now."""
        before = self.commits
        eventually(lambda: self.commits > before or self.problems, what="a further commit")
        assert not self.problems
        assert (self.assignments, self.losses) == (1, 0)

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._gained, on_revoke=self._lost)
        while not self._is_over.is_set():
            self._consumer.poll(PAUSE_S)
            if self.assignments:
                self._commit()
        self._consumer.unsubscribe()
        self._consumer.close()

    def _commit(self) -> None:
        began = time.monotonic()
        try:
            self._consumer.commit(
                offsets=[TopicPartition(self._topic, 0, self.commits)], asynchronous=False
            )
        except KafkaException as error:
            self.problems.append(str(error))
        self.commits += 1
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def _gained(self, *_: object) -> None:
        self.assignments += 1

    def _lost(self, *_: object) -> None:
        self.losses += not self._is_over.is_set()
