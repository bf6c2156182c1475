"""A member of a group around librdkafka, told by tests/harness/protocol_members.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # a program of its own, whoever starts it

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.matrix.member_lines import Given, given, partitions_of, tell, told_to_stop


def settings(asked: Given) -> dict[str, Any]:
    """The consumer's settings; timers of a classic group are its members'."""
    found: dict[str, Any] = {
        "bootstrap.servers": asked.bootstrap,
        "group.id": asked.group,
        "group.protocol": asked.protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": asked.max_poll_ms,
        "log_level": 3,
    }
    if asked.instance:
        found["group.instance.id"] = asked.instance
    if asked.protocol == "classic":
        timers = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
        timers["session.timeout.ms"] = min(timers["session.timeout.ms"], asked.max_poll_ms)
        found |= timers
        found["partition.assignment.strategy"] = asked.assignor or "range"
    elif asked.assignor:
        found["group.remote.assignor"] = asked.assignor
    return found


def main() -> None:
    asked = given()
    consumer = Consumer(settings(asked))
    owned: set[int] = set()

    def assigned(_: Consumer, places: list[Any]) -> None:
        owned.update(partitions_of(places))
        tell("assigned", partitions=partitions_of(places))

    def revoked(_: Consumer, places: list[Any]) -> None:
        tell("revoking")
        time.sleep(asked.slow_s)
        owned.difference_update(partitions_of(places))
        tell("revoked", partitions=partitions_of(places))

    def lost(_: Consumer, places: list[Any]) -> None:
        owned.difference_update(partitions_of(places))
        tell("lost", partitions=partitions_of(places))

    stop = told_to_stop()
    consumer.subscribe([asked.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    tell("started")
    while not stop.is_set():
        try:
            found = consumer.consume(200, 0.1)
            for one in found:
                if one.error() is not None:
                    tell("error", text=str(one.error()))
            good = [one for one in found if one.error() is None]
            read: list[tuple[int, int]] = [(one.partition(), one.offset()) for one in good]  # type: ignore[misc]
            if read:
                tell("read", records=read)
                ends = {partition: offset + 1 for partition, offset in read if partition in owned}
                commit(consumer, asked.topic, ends)
        except KafkaException as error:
            tell("error", text=str(error))
    consumer.close()
    tell("closed")


def commit(consumer: Consumer, topic: str, ends: dict[int, int]) -> None:
    """Commit what was read of partitions that it still has; each that fails is an error."""
    if not ends:
        return
    tell("committing", ends=list(ends.items()))
    wanted = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    done: list[Any] = consumer.commit(offsets=wanted, asynchronous=False) or []
    tell("committed", partitions=partitions_of(place for place in done if place.error is None))
    for place in done:
        if place.error is not None:
            tell("error", text=f"commit {place.partition}: {place.error}")


if __name__ == "__main__":
    main()
