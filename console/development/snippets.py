"""Programs to copy: how our client and the usual ones reach the cluster that was just started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TITLES: Final = {
    "barnabas": "Python, with what is installed here",
    "kafka-python": "pip install kafka-python",
    "aiokafka": "pip install aiokafka",
    "confluent-kafka": "pip install confluent-kafka",
    "kcat": "apt-get install kcat",
}
"""By client, how one comes to have it."""


def snippets(bootstrap: str) -> str:
    """A first program for each client, under the client's name, to be copied as it stands."""
    return "\n".join(
        f"# {_TITLES[client]}\n{program}" for client, program in first_programs(bootstrap).items()
    )


def first_programs(bootstrap: str) -> Mapping[str, str]:
    """By client: produce one record into ``orders``, then consume it as a member of a group.

    Each leaves its group before it ends, or the next one would have to wait for its session.
    """
    return {
        "barnabas": f"""\
from barnabas.client import SyncConsumer, SyncProducer
servers = "{bootstrap}"
with SyncProducer(servers) as producer:
    producer.send("orders", "world")
first = {{"auto.offset.reset": "earliest"}}
with SyncConsumer(servers, "orders", group="g", config=first) as consumer:
    print(next(iter(consumer)).value)
""",
        "kafka-python": f"""\
from kafka import KafkaConsumer, KafkaProducer
servers = "{bootstrap}"
KafkaProducer(bootstrap_servers=servers).send("orders", b"world").get()
consumer = KafkaConsumer(
    "orders", group_id="g", auto_offset_reset="earliest", bootstrap_servers=servers
)
print(next(consumer).value)
consumer.close()
""",
        "aiokafka": f"""\
import asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
servers = "{bootstrap}"
async def main():
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"world")
    async with AIOKafkaConsumer(
        "orders", group_id="g", auto_offset_reset="earliest", bootstrap_servers=servers
    ) as consumer:
        print((await consumer.getone()).value)

asyncio.run(main())
""",
        "confluent-kafka": f"""\
from confluent_kafka import Consumer, Producer
servers = "{bootstrap}"
producer = Producer({{"bootstrap.servers": servers}})
producer.produce("orders", b"world")
producer.flush()
consumer = Consumer(
    {{"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}}
)
consumer.subscribe(["orders"])
print(consumer.consume(1)[0].value())
consumer.close()
""",
        "kcat": f"""\
echo world | kcat -b {bootstrap} -P -t orders
kcat -b {bootstrap} -X auto.offset.reset=earliest -c 1 -G g orders
""",
    }
