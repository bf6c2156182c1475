"""A member of a group around our own client, told by tests/harness/protocol_members.py."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # a program of its own, whoever starts it

from barnabas.client import Consumer, KafkaError, RebalanceListener
from barnabas.client.consumer.rebalance_listener import PartitionSet
from tests.interop.matrix.member_lines import Given, given, partitions_of, tell, told_to_stop


class Telling(RebalanceListener):
    """Tells what comes and goes."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s

    async def on_assigned(self, topic_partitions: PartitionSet) -> None:
        tell("assigned", partitions=partitions_of(topic_partitions))

    async def on_revoked(self, topic_partitions: PartitionSet) -> None:
        tell("revoking")
        await asyncio.sleep(self._slow_s)
        tell("revoked", partitions=partitions_of(topic_partitions))

    async def on_lost(self, topic_partitions: PartitionSet) -> None:
        tell("lost", partitions=partitions_of(topic_partitions))


def settings(asked: Given) -> dict[str, object]:
    """The consumer's settings; timers of a classic group are its members'."""
    found: dict[str, object] = {
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": asked.max_poll_ms,
        "group.protocol": asked.protocol,
    }
    if asked.instance:
        found["group.instance.id"] = asked.instance
    if asked.protocol == "classic":
        found |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
        found["partition.assignment.strategy"] = asked.assignor or "range"
    elif asked.assignor:
        found["group.remote.assignor"] = asked.assignor
    return found


async def main() -> None:
    asked = given()
    consumer = Consumer(
        asked.bootstrap,
        asked.topic,
        group=asked.group,
        config=settings(asked),
        listener=Telling(asked.slow_s),
    )
    stop = told_to_stop()
    async with consumer:
        tell("started")
        while not stop.is_set():
            try:
                batch = await consumer.next_batch(200, timeout_s=0.1)
                if batch is None:
                    continue
                tell("read", records=[[one.partition, one.offset] for one in batch.records()])
                ends = batch.offsets.items()
                tell("committing", ends=[[place.partition, end.offset] for place, end in ends])
                await batch.commit()
                tell("committed", partitions=partitions_of(place for place, _ in ends))
            except KafkaError as error:
                tell("error", text=str(error))
    tell("closed")


if __name__ == "__main__":
    asyncio.run(main())
