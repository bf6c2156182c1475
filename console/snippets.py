"""Lines to copy: how the usual clients reach the cluster that was just started."""

from __future__ import annotations


def snippets(bootstrap: str) -> str:
    """A first program for each client, aimed at ``bootstrap``."""
    servers = f'bootstrap_servers="{bootstrap}"'
    return f"""\
kafka-python
  from kafka import KafkaConsumer, KafkaProducer
  KafkaProducer({servers}).send("hello", b"world").get()
  next(KafkaConsumer("hello", group_id="g", auto_offset_reset="earliest", {servers}))

aiokafka
  from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
  AIOKafkaConsumer("hello", group_id="g", auto_offset_reset="earliest", {servers})

confluent-kafka
  from confluent_kafka import Consumer, Producer
  Consumer({{"bootstrap.servers": "{bootstrap}", "group.id": "g"}}).subscribe(["hello"])

kcat
  echo world | kcat -b {bootstrap} -P -t hello
  kcat -b {bootstrap} -G g hello
"""
