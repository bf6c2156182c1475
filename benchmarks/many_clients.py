"""Many producers of small batches, and the members of a group that read them: jobs of bulk_client.

Each client is a thread with a producer or consumer of its own, as several applications are. Batches
have ten records at most, so that what a request costs counts more than what its bytes do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, Message, Producer

from benchmarks.bulk_client import (
    CONSUME_MAX,
    CONSUMER,
    DEADLINE_S,
    PRODUCER,
    BulkTask,
    WentWrong,
)

BATCH_RECORDS = 10
SMALL_BATCHES = {"batch.num.messages": BATCH_RECORDS, "linger.ms": 5}
TURN = 100
"""Records that a producer sends before it looks for what was delivered."""


def produce_many(job: BulkTask) -> None:
    """Every record delivered, each client's share to all partitions in turn, or WentWrong."""
    _all_at_once([lambda first=first: _produce(job, first) for first in range(job.clients)])  # type: ignore[misc]


def read_as_group(job: BulkTask) -> None:
    """Everything read once by the members of a fresh group, or WentWrong."""
    progress = _Progress(job.records)
    _all_at_once([lambda: _read(job, progress) for _ in range(job.clients)])
    if progress.count != job.records:
        raise WentWrong(f"{progress.count} of {job.records} read")


class _Progress:
    """Records that all members have read together."""

    def __init__(self, wanted: int) -> None:
        self.count = 0
        self._wanted = wanted
        self._lock = threading.Lock()
        self._deadline = time.monotonic() + DEADLINE_S

    def add(self, records: int) -> None:
        with self._lock:
            self.count += records

    @property
    def is_over(self) -> bool:
        return self.count >= self._wanted or time.monotonic() > self._deadline


def _all_at_once(works: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(works)) as threads:
        for done in [threads.submit(work) for work in works]:
            done.result()


def _produce(job: BulkTask, first: int) -> None:
    failed: list[KafkaError] = []
    delivered = 0

    def told(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        if error is not None:
            failed.append(error)
        delivered += 1

    settings = {"bootstrap.servers": job.bootstrap, **PRODUCER, **SMALL_BATCHES, **job.client}
    producer = Producer(settings)
    value, share = bytes(job.size), range(first, job.records, job.clients)
    for sent, number in enumerate(share):
        partition = number // job.clients % job.partitions
        producer.produce(job.topic, value, partition=partition, on_delivery=told)
        if not sent % TURN:
            producer.poll(0)
    left = producer.flush(DEADLINE_S)
    if failed or left or delivered != len(share):
        raise WentWrong(f"{delivered} of {len(share)} delivered, {failed[:1]}")


def _read(job: BulkTask, progress: _Progress) -> None:
    group = {"group.id": f"readers-of-{job.topic}", "queued.min.messages": 10_000}
    settings = {"bootstrap.servers": job.bootstrap, **CONSUMER, **group, **job.client}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([job.topic])
        while not progress.is_over:
            found = consumer.consume(CONSUME_MAX, 0.1)
            for message in found:
                if message.error():
                    raise WentWrong(str(message.error()))
            if found:
                progress.add(len(found))
                consumer.commit(asynchronous=True)
    finally:
        consumer.close()


DO = {"produce many": produce_many, "read as group": read_as_group}
