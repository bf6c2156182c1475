"""Something to look at for ``barnabas up --demo``: records, and three groups that differ.

``kitchen`` keeps up, ``shipping`` is too slow (WARN after some ten seconds), ``billing`` stays at a
record that it cannot read, and commits the same offset again and again (STALL). Run as
``python -m barnabas.console.development.demo_traffic BOOTSTRAP``, until a signal.
Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from typing import Any, Final

from barnabas.client import Consumer, Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode

TOPIC: Final = "orders"
PARTITIONS: Final = 3
GROUPS: Final = ("kitchen", "shipping", "billing")
_RECORDS_A_SECOND: Final = 15
_SLOW_A_SECOND: Final = 4
_POISON: Final = 10
"""The offset in partition 0 where ``billing`` stays."""
_COMMIT_S: Final = 1.0
_NAMES: Final = ("kim", "max", "ada", "lou", "zoe", "sam")
_DISHES: Final = ("two teas", "one scone", "three soups", "a coffee")
_FIRST: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


async def run(bootstrap: str) -> None:
    """Send and read until cancelled."""
    async with Admin.of(bootstrap) as admin:
        try:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # kept by --data
                raise
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_send(bootstrap), name="orders")
        tasks.create_task(_read(bootstrap, "kitchen", 10 * _RECORDS_A_SECOND), name="kitchen")
        tasks.create_task(_read(bootstrap, "shipping", _SLOW_A_SECOND), name="shipping")
        tasks.create_task(_stay(bootstrap), name="billing")


async def _send(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in itertools.count():
            name = _NAMES[number % len(_NAMES)]
            order = {"order": number, "guest": name, "dish": _DISHES[number % len(_DISHES)]}
            await producer.send(TOPIC, json.dumps(order), key=name, partition=number % PARTITIONS)
            await asyncio.sleep(1 / _RECORDS_A_SECOND)


async def _read(bootstrap: str, group: str, a_second: int) -> None:
    """Read at most so many records a second, and commit each second."""
    async with Consumer(bootstrap, TOPIC, group=group, config=_config(group)) as consumer:
        while True:
            await consumer.next_batch(a_second, timeout_s=_COMMIT_S)
            await consumer.commit()
            await asyncio.sleep(_COMMIT_S)


async def _stay(bootstrap: str) -> None:
    """Read up to the record that cannot be read, then commit the offset before it for ever."""
    poison = TopicPartition(TOPIC, 0)
    async with Consumer(bootstrap, TOPIC, group="billing", config=_config("billing")) as consumer:
        read: dict[TopicPartition, int] = {}
        while True:
            batch = await consumer.next_batch(_RECORDS_A_SECOND, timeout_s=_COMMIT_S)
            for record in batch.records() if batch is not None else ():
                place = TopicPartition(record.topic, record.partition)
                is_stuck = place == poison and (
                    record.offset == _POISON or read.get(place) == _POISON
                )
                read[place] = _POISON if is_stuck else record.offset + 1
            try:
                await consumer.commit(read)
            except KafkaError:
                read.clear()  # it was taken out of the group: it goes on where that is now
            await asyncio.sleep(_COMMIT_S)


def _config(group: str) -> dict[str, Any]:
    return {**_FIRST, "client.id": f"demo-{group}"}


async def main(bootstrap: str) -> None:
    """Run until SIGTERM or SIGINT."""
    work = asyncio.create_task(run(bootstrap))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
