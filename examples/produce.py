"""Sends orders to a topic: the first half of a pair, consume.py is the other.

    python examples/produce.py [HOW MANY]

`barnabas up` starts a cluster to try it on. Any Kafka will do: set BARNABAS_BOOTSTRAP.
"""

from __future__ import annotations

import asyncio
import os
import sys

from barnabas.client import Admin, NewTopic, SyncProducer

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC = "orders"
GUESTS = ("kim", "max", "ada")


async def make_topic() -> None:
    """A topic is made once. `exist_ok`: one that is there already is just as well."""
    async with Admin.of(BOOTSTRAP) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=3)], exist_ok=True)


def main(count: int) -> None:
    """Send `count` orders."""
    asyncio.run(make_topic())
    with SyncProducer(BOOTSTRAP) as producer:
        for number in range(count):
            # Records of one key go to one partition, so one guest's orders stay in their order.
            guest = GUESTS[number % len(GUESTS)]
            producer.send_soon(TOPIC, f"order {number}", key=guest)
        # send_soon does not wait; leaving the block does, until every record is acknowledged.
    print(f"sent {count} orders to {TOPIC}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
