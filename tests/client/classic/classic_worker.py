"""One classic consumer as a process, for tests that kill it; writes down all that it does.

Every line of its journal is one JSON list: the monotonic time in ns, which all processes share,
its process id, what happened, and to what.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from typing import Any

from barnabas.client.classic.classic_config import ClassicConfig
from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.classic.kafka_stream import KafkaStream
from barnabas.client.classic.offset_stores import Failures, OffsetStore
from barnabas.client.topology import TopicPartition

PROCESSING_S = 0.002


class Diary:
    """A file that outlives kill -9: every line is handed to the system at once."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, about: Any, at: int | None = None) -> None:
        line = json.dumps([at or time.monotonic_ns(), os.getpid(), what, about])
        os.write(self._file, line.encode() + b"\n")


class NotedOffsets:
    """A store whose starts and commits go into the diary."""

    def __init__(self, store: OffsetStore, diary: Diary) -> None:
        self._store = store
        self._diary = diary

    async def fetch(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        asked = time.monotonic_ns()
        found = await self._store.fetch(topic_partitions)
        starts = {
            topic_partition.partition: found.get(topic_partition, -1)
            for topic_partition in topic_partitions
        }
        self._diary.note("starts", starts, asked)
        return found

    async def commit(
        self, offsets: Mapping[TopicPartition, int], *, retry_for_ms: int = 0
    ) -> Failures:
        wanted = {topic_partition.partition: offset for topic_partition, offset in offsets.items()}
        self._diary.note("commits", wanted)
        failures = await self._store.commit(offsets, retry_for_ms=retry_for_ms)
        for topic_partition in failures:
            del wanted[topic_partition.partition]
        self._diary.note("committed", wanted)
        return failures

    async def close(self) -> None:
        await self._store.close()


async def process(stream: KafkaStream, diary: Diary) -> None:
    async for message in stream:
        await asyncio.sleep(PROCESSING_S)
        diary.note("did", [message.partition, message.offset])


async def main(path: str, topic: str, streams: int, settings: dict[str, Any]) -> None:
    diary = Diary(path)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with ConsumerConnector(ClassicConfig(**settings)) as connector:
        assert connector._store is not None
        connector._store = NotedOffsets(connector._store, diary)
        found = await connector.create_message_streams({topic: streams})
        sys.stdout.write("joined\n")
        sys.stdout.flush()
        async with asyncio.TaskGroup() as tasks:
            for stream in found[topic]:
                tasks.create_task(process(stream, diary))
            await over.wait()
            await connector.shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])))
