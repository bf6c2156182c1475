"""Produces and fetches in bulk with confluent-kafka: one job a line in, one result a line out.

It runs as a process of its own, so that what it costs is never counted as the server's. Settings
are librdkafka's defaults, but for acks=1 and queues that hold neither side up.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.server_process import cpu_seconds

VARIED_PAYLOADS = 8192
VARIATION = 0.6
"""Of the logarithm of a length."""
PAYLOADS = 64
"""Different values, taken in turn; none of them can be compressed."""
CONSUME_MAX = 10_000
DEADLINE_S = 120.0
PRODUCER = {
    "acks": 1,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 256 << 10,
}
CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 << 10,
    "fetch.queue.backoff.ms": 10,
}


class WentWrong(Exception):  # noqa: N818 - says what happened
    """The server refused, or answered something else than was produced."""


@dataclass(frozen=True, slots=True)
class BulkTask:
    """``records`` of ``size`` bytes, to or from partition 0 of ``topic``; ``pid`` is watched."""

    do: str
    """create, produce, fetch or delete; produce many and read as group are of many_clients.py."""
    bootstrap: str
    pid: int
    topic: str
    size: int = 0
    records: int = 0
    times: int = 1
    """How often a fetch reads all of it."""
    is_varied: bool = False
    """Records have keys, and values of lengths that all differ, ``size`` bytes on average; half of
    each is text that can be compressed."""
    admin: str = ""
    """Where topics are made, if not there."""
    client: Mapping[str, str] = field(default_factory=dict)
    """More settings of producer and consumer."""
    partitions: int = 1
    replicas: int = 1
    clients: int = 1
    """How many produce, or read as members of a group, at once."""
    pids: Sequence[int] = ()
    """The processes to watch, where there are several nodes."""


@dataclass(frozen=True, slots=True)
class BulkCost:
    """What one job cost; ``value_bytes`` counts the values of its records alone."""

    value_bytes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0


def create(job: BulkTask) -> None:
    """A topic; of one partition, unless the job says otherwise. Waits for nodes that it needs."""
    admin = AdminClient({"bootstrap.servers": job.admin or job.bootstrap})
    deadline = time.monotonic() + DEADLINE_S
    while len(admin.list_topics(timeout=DEADLINE_S).brokers) < job.replicas:
        if time.monotonic() > deadline:
            raise WentWrong(f"fewer than {job.replicas} nodes")
        time.sleep(0.1)
    wanted = NewTopic(job.topic, job.partitions, job.replicas)
    for made in admin.create_topics([wanted]).values():
        made.result(DEADLINE_S)


def delete(job: BulkTask) -> None:
    """Give the disk back."""
    admin = AdminClient({"bootstrap.servers": job.admin or job.bootstrap})
    for gone in admin.delete_topics([job.topic]).values():
        gone.result(DEADLINE_S)


def produce(job: BulkTask) -> None:
    """Every record delivered, or WentWrong."""
    failed: list[KafkaError] = []
    delivered = 0

    def told(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        if error is not None:
            failed.append(error)
        delivered += 1

    producer = Producer({"bootstrap.servers": job.bootstrap, **PRODUCER, **job.client})
    payloads = _varied(job.size) if job.is_varied else _alike(job.size)
    count = len(payloads)
    send = producer.produce
    for number in range(job.records):
        value, key = payloads[number % count]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                send(job.topic, value, key, partition=0, on_delivery=told)
                break
            except BufferError as full:  # a server that rests for seconds is waited for
                if time.monotonic() >= deadline:
                    raise WentWrong(f"{delivered} of {job.records} delivered, no room") from full
                producer.poll(0.05)
        if not number % 1000:
            producer.poll(0)
    left = producer.flush(DEADLINE_S)
    if failed or left or delivered != job.records:
        raise WentWrong(f"{delivered} of {job.records} delivered, {failed[:1]}")


def _alike(size: int) -> list[tuple[bytes, bytes | None]]:
    """Values of one length, without keys."""
    return [(os.urandom(size), None) for _ in range(PAYLOADS)]


def _varied(size: int) -> list[tuple[bytes, bytes | None]]:
    """Values and keys: lengths as those of events, most of them short and a few long."""
    chance = random.Random(1)
    lengths = [chance.lognormvariate(0, VARIATION) for _ in range(VARIED_PAYLOADS)]
    scale = size * len(lengths) / sum(lengths)
    made: list[tuple[bytes, bytes | None]] = []
    for number, share in enumerate(lengths):
        length = max(2, round(scale * share))
        text = (b"event %d of a stream " % number) * (length // 16 + 1)
        value = chance.randbytes(length // 2) + text[: length - length // 2]
        made.append((value, b"key-%d" % chance.randrange(10**9)))
    return made


def fetch(job: BulkTask) -> None:
    """Everything in order from the beginning, as often as asked, or WentWrong."""
    settings = {name: value for name, value in job.client.items() if name != "compression.type"}
    consumer = Consumer({"bootstrap.servers": job.bootstrap, **CONSUMER, **settings})
    try:
        for _ in range(job.times):
            consumer.assign([TopicPartition(job.topic, 0, 0)])
            _read_all(consumer, job)
    finally:
        consumer.close()


def _read_all(consumer: Consumer, job: BulkTask) -> None:
    due, deadline = 0, time.monotonic() + DEADLINE_S
    while due < job.records:
        found = consumer.consume(CONSUME_MAX, 1.0)
        if not found and time.monotonic() > deadline:
            raise WentWrong(f"{due} of {job.records} fetched")
        if not found:
            continue
        last = found[-1]
        if last.error() or found[0].offset() != due or _is_wrong(job, last.value()):
            raise WentWrong(f"offset {found[0].offset()} not {due}: {last.error()}")
        due += len(found)
        if last.offset() != due - 1:
            raise WentWrong(f"offset {last.offset()} not {due - 1}")


def _is_wrong(job: BulkTask, value: bytes | str | None) -> bool:
    return not job.is_varied and len(value or b"") != job.size


DO: dict[str, Callable[[BulkTask], None]] = {
    "create": create,
    "produce": produce,
    "fetch": fetch,
    "delete": delete,
}


def run(job: BulkTask) -> BulkCost:
    """Do it, watching the server's CPU and the clock."""
    cpu, wall = _cpu_seconds(job), time.monotonic()
    DO[job.do](job)
    return BulkCost(
        job.size * job.records * job.times,
        time.monotonic() - wall,
        _cpu_seconds(job) - cpu,
    )


def _cpu_seconds(job: BulkTask) -> float:
    return sum(map(cpu_seconds, job.pids or [job.pid]))


def main() -> None:
    """Serve jobs until standard input ends."""
    from benchmarks import many_clients

    DO.update(many_clients.DO)
    for line in sys.stdin:
        print(json.dumps(asdict(run(BulkTask(**json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
