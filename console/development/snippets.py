"""Programs to copy: how our client and the usual ones reach the cluster that was just started."""

from __future__ import annotations

from collections.abc import Mapping


def snippets(bootstrap: str) -> str:
    """A first program for each client, under the client's name, to be copied as it stands."""
    return "\n".join(
        f"# {client}\n{program}" for client, program in first_programs(bootstrap).items()
    )


def first_programs(bootstrap: str) -> Mapping[str, str]:
    """By client: produce one record into ``hello``, then consume it as a member of a group.

    Each leaves its group before it ends, or the next one would have to wait for its session.
    """
    return {
        "barnabas": f"""\
from barnabas.client import SyncConsumer, SyncProducer
servers = "{bootstrap}"
with SyncProducer(servers) as producer:
    producer.send("hello", "world")
first = {{"auto.offset.reset": "earliest"}}
with SyncConsumer(servers, "hello", group="g", config=first) as consumer:
    print(next(iter(consumer)).value)
""",
        "kafka-python": f"""\
from kafka import KafkaConsumer, KafkaProducer
servers = "{bootstrap}"
KafkaProducer(bootstrap_servers=servers).send("hello", b"world").get()
consumer = KafkaConsumer(
    "hello", group_id="g", auto_offset_reset="earliest", bootstrap_servers=servers
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
        await producer.send_and_wait("hello", b"world")
    async with AIOKafkaConsumer(
        "hello", group_id="g", auto_offset_reset="earliest", bootstrap_servers=servers
    ) as consumer:
        print((await consumer.getone()).value)

asyncio.run(main())
""",
        "confluent-kafka": f"""\
from confluent_kafka import Consumer, Producer
servers = "{bootstrap}"
producer = Producer({{"bootstrap.servers": servers}})
producer.produce("hello", b"world")
producer.flush()
consumer = Consumer(
    {{"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}}
)
consumer.subscribe(["hello"])
print(consumer.consume(1)[0].value())
consumer.close()
""",
        "kcat": f"""\
echo world | kcat -b {bootstrap} -P -t hello
kcat -b {bootstrap} -X auto.offset.reset=earliest -c 1 -G g hello
""",
    }
