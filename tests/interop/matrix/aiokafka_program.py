"""aiokafka in any release from 0.10 on; see steps.py."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

warnings.simplefilter("ignore")

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # noqa: E402
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # noqa: E402
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # noqa: E402

from tests.interop.matrix.steps import (  # noqa: E402
    FIRST,
    MORE,
    PARTITIONS,
    PATIENCE_S,
    RETENTION,
    T0,
    Steps,
    by_partition,
    sent,
)

NOT_CONTROLLER = 41
"""0.10 sends to any node what only the controller does, and leaves it to us to ask again."""


class Program(Steps):
    def __init__(self) -> None:
        super().__init__()
        self.admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        self.places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]

    async def step(self, name: str, ask: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                self.outcomes[name] = await ask(*arguments)
        except Exception as failure:  # noqa: BLE001 - every way to fail is told
            self.outcomes[name] = f"{type(failure).__name__}: {failure}"

    async def create(self) -> int:
        wanted = [NewTopic(self.topic, PARTITIONS, 1)]
        while (await self.admin.create_topics(wanted)).topic_errors[0][1] == NOT_CONTROLLER:
            pass
        while True:
            (found,) = await self.admin.describe_topics([self.topic])
            if found["partitions"]:
                return len(found["partitions"])

    async def produce(self, first: int, count: int, codec: str | None) -> Any:
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            futures = [
                await producer.send(
                    self.topic,
                    value,
                    key,
                    partition=where,
                    timestamp_ms=stamp,
                    headers=[("h", b"1")],
                )
                for where, stamp, key, value in sent(first, count)
            ]
            return len(await asyncio.gather(*futures))

    def member(self, *topics: str) -> Any:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=30_000,
            metadata_max_age_ms=5_000,  # its node may hear of the topic a moment later
        )

    async def read(self, count: int) -> int:
        values: set[bytes] = set()
        async with self.member(self.topic) as consumer:
            while len(values) < count:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values.update(record.value for record in records)
            await consumer.commit()
        return len(values)

    async def committed(self) -> Any:
        async with self.member() as consumer:
            return by_partition(
                [(at.partition, await consumer.committed(at)) for at in self.places]
            )

    async def offsets(self) -> Any:
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            first = await consumer.beginning_offsets(self.places)
            end = await consumer.end_offsets(self.places)
        return by_partition((at.partition, [first[at], end[at]]) for at in self.places)

    async def by_time(self) -> Any:
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            found = await consumer.offsets_for_times({self.places[0]: T0 + FIRST * 1000})
        return found[self.places[0]].offset

    async def groups(self) -> bool:
        return self.group in [found[0] for found in await self.admin.list_consumer_groups()]

    async def offsets_of_group(self) -> Any:
        found = await self.admin.list_consumer_group_offsets(self.group)
        return by_partition((at.partition, committed.offset) for at, committed in found.items())

    async def alter(self) -> Any:
        wanted = ConfigResource(ConfigResourceType.TOPIC, self.topic, {"retention.ms": RETENTION})
        await self.admin.alter_configs([wanted])
        answers = await self.admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, self.topic)]
        )
        rows = [row for answer in answers for resource in answer.resources for row in resource[4]]
        return next(row[1] for row in rows if row[0] == "retention.ms")

    async def delete(self) -> bool:
        answer = await self.admin.delete_topics([self.topic])
        while answer.topic_error_codes[0][1] == NOT_CONTROLLER:
            answer = await self.admin.delete_topics([self.topic])
        while self.topic in await self.admin.list_topics():  # noqa: ASYNC110 - a cluster decides
            await asyncio.sleep(0.05)
        return True


async def main() -> None:
    program = Program()
    await program.admin.start()
    await program.step("create", program.create)
    await program.step("groups before any", program.groups)
    await program.step("produce", program.produce, 0, FIRST, None)
    await program.step("read", program.read, FIRST * PARTITIONS)
    await program.step("committed", program.committed)
    await program.step("produce more", program.produce, FIRST, MORE, "gzip")
    await program.step("read again", program.read, MORE * PARTITIONS)
    await program.step("committed again", program.committed)
    await program.step("offsets", program.offsets)
    await program.step("offset by time", program.by_time)
    await program.step("groups", program.groups)
    await program.step("offsets of the group", program.offsets_of_group)
    await program.step("alter", program.alter)
    await program.step("delete", program.delete)
    await program.admin.close()
    program.show()


asyncio.run(main())
