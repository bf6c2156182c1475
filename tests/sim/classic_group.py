"""Classic consumers on the simulated cluster, and a journal of all that they read and committed.

The consumers are the shipped ones; each is a machine of its own that can be killed, frozen or
shut down. Source: docs/spec/coordinator.md §6.4, §6.7 and §6.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from barnabas.client.classic.classic_config import ClassicConfig
from barnabas.client.classic.consumer_connector import ConsumerConnector
from barnabas.client.classic.kafka_stream import KafkaStream
from barnabas.client.classic.offset_stores import Failures, OffsetStore
from barnabas.client.classic.topic_filter import whitelist
from barnabas.client.topology import TopicPartition
from barnabas.protocol.messages import (
    create_partitions,
    create_topics,
    list_offsets,
    metadata,
    produce,
)
from barnabas.protocol.records import batch
from barnabas.protocol.zookeeper import znodes
from tests.sim.cluster import NODES, Cluster, eventually
from tests.sim.simulated_network import OWNER
from tests.sim.simulated_zookeeper import SimZooKeeper

log = logging.getLogger(__name__)

GROUP = "g"
TOPIC = "orders"
PARTITIONS = 4
SESSION_MS = 3_000
REBALANCE_S = 15
"""Whoever gives partitions up commits first: a coordinator that was killed is away for 6 s."""
COMMIT_MS = 700


class Journal:
    """What was processed and what was committed, and what must never be seen of either."""

    def __init__(self, cluster: Cluster) -> None:
        self.processed: dict[TopicPartition, set[int]] = defaultdict(set)
        self.acknowledged: dict[TopicPartition, int] = {}
        self.duplicates = 0
        self.unexcused: list[str] = []
        """What was wrong. What raises in a store ends in the consumer, which would try again."""
        self._cluster = cluster
        self._latest: dict[TopicPartition, list[int]] = defaultdict(list)
        """What was processed of each partition since it changed hands last."""
        self._open: set[TopicPartition] = set()
        """Partitions whose last owner could not commit at its end."""

    def starts(self, who: str, offsets: Mapping[TopicPartition, int], asked: Any) -> None:
        """A consumer begins to read: never before what was acknowledged, in whichever store."""
        for topic_partition in asked:
            least = self.acknowledged.get(topic_partition, -1)
            start = offsets.get(topic_partition, -1)
            if start < least:
                self.unexcused.append(
                    f"{who} starts {topic_partition} at {start}, acknowledged was {least}"
                )
            again = {offset for offset in self._latest.pop(topic_partition, ()) if offset >= start}
            if len(again) > 1 and topic_partition not in self._open:
                self.unexcused.append(f"{who} reads {topic_partition} from {start}, again {again}")
            self._open.discard(topic_partition)

    def committed(self, who: str, offsets: Mapping[TopicPartition, int]) -> None:
        for topic_partition, offset in offsets.items():
            least = self.acknowledged.get(topic_partition, -1)
            if offset < least:
                self.unexcused.append(f"{who} commits {topic_partition} at {offset}, after {least}")
            self.acknowledged[topic_partition] = offset

    def excuse(self, topic_partitions: Collection[TopicPartition]) -> None:
        """The owner died, or no store could be asked: what it had not committed comes again."""
        self._open.update(topic_partitions)

    def process(self, topic_partition: TopicPartition, offset: int) -> None:
        self.duplicates += offset in self.processed[topic_partition]
        self.processed[topic_partition].add(offset)
        self._latest[topic_partition].append(offset)

    def hand_out(self, consumer: Consumer, topic_partition: TopicPartition) -> None:
        """Only its owner reads a partition: as long as it has a session, ZooKeeper says so."""
        tree = self._cluster.ensemble.tree
        if consumer.session.session_id not in self._cluster.ensemble.alive:
            return
        path = znodes.consumer_owner_path(GROUP, topic_partition.topic, topic_partition.partition)
        holder = tree.nodes[path].data.decode() if path in tree.nodes else "nobody"
        assert holder.startswith(consumer.connector.consumer_id), f"{consumer.name}: {holder}"


class NotedOffsets:
    """A store, and the journal that is told of all it did."""

    def __init__(self, who: str, store: OffsetStore, journal: Journal) -> None:
        self._who = who
        self._store = store
        self._journal = journal

    async def fetch(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found = await self._store.fetch(topic_partitions)
        self._journal.starts(self._who, found, topic_partitions)
        return found

    async def commit(
        self, offsets: Mapping[TopicPartition, int], *, retry_for_ms: int = 0
    ) -> Failures:
        self._journal.excuse(offsets)  # until it is known to be done
        failures = await self._store.commit(offsets, retry_for_ms=retry_for_ms)
        stored = {
            topic_partition: at
            for topic_partition, at in offsets.items()
            if topic_partition not in failures
        }
        self._journal.committed(self._who, stored)
        self._journal._open.difference_update(stored)
        return failures

    async def close(self) -> None:
        await self._store.close()


class Consumer:
    """One consumer process: a connector, and tasks that process what its streams hand out."""

    def __init__(self, group: ClassicGroup, name: str, streams: int, settings: Any) -> None:
        self.name = name
        self.streams = streams
        self._group = group
        self._settings = settings
        self._work: list[asyncio.Task[None]] = []
        self.is_up = False

    async def start(self, **settings: Any) -> None:
        """Join the group; returns when that is done."""
        self._settings |= settings
        group = self._group
        self.session: SimZooKeeper = group.cluster.ensemble.connect(SESSION_MS)
        config = ClassicConfig(
            zookeeper_connect="ensemble:2181",
            group_id=GROUP,
            consumer_id=f"{self.name}-{group.next_life()}",
            auto_offset_reset="smallest",
            auto_commit_interval_ms=COMMIT_MS,
            rebalance_backoff_ms=1_000,
            rebalance_max_retries=REBALANCE_S,
            offsets_channel_backoff_ms=300,
            fetch_wait_max_ms=500,
            **self._settings,
        )
        rng = group.cluster.loop.random
        token = OWNER.set(self.name)
        try:
            self.connector = ConsumerConnector(
                config,
                zookeeper=self.session,
                now_ms=group.cluster.loop.wall_ms,
                random=rng,
            )
            await self.connector.start()
            assert self.connector._store is not None
            self.connector._store = NotedOffsets(self.name, self.connector._store, group.journal)
            if rng.random() < 0.3:
                only = whitelist(f"{TOPIC},another")
                found = await self.connector.create_message_streams_by_filter(only, self.streams)
            else:
                streams = await self.connector.create_message_streams({TOPIC: self.streams})
                found = streams[TOPIC]
            self._work = [asyncio.create_task(self._process(stream)) for stream in found]
        finally:
            OWNER.reset(token)
        self.is_up = True

    async def stop(self) -> None:
        """SIGTERM: what is in hand is finished, then the connector shuts down."""
        self.is_up = False
        await self.connector.shutdown()
        await asyncio.gather(*self._work)

    async def kill(self) -> None:
        """kill -9: nothing more is committed; the session ends when it times out."""
        self.is_up = False
        self._group.journal.excuse(self.connector.owned.keys())
        self.session.crash()
        for task in self._work:
            task.cancel()
        await asyncio.wait(self._work)
        await self.connector._tasks.close()
        self._group.cluster.loop.network.kill(self.name)
        await self.connector._fetchers.close()
        assert self.connector._store is not None
        await self.connector._store.close()

    async def expire(self) -> None:
        """ZooKeeper lets the session time out; the process goes on."""
        self._group.journal.excuse(self.connector.owned.keys())
        self.session.expire()
        await asyncio.sleep(0)

    async def _process(self, stream: KafkaStream) -> None:
        rng = self._group.cluster.loop.random
        async for message in stream:
            topic_partition = TopicPartition(message.topic, message.partition)
            self._group.journal.hand_out(self, topic_partition)
            await asyncio.sleep(rng.uniform(0, 0.03))
            self._group.journal.process(topic_partition, message.offset)


class ClassicGroup:
    """The simulated cluster, a producer, and a group of consumers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.journal = Journal(cluster)
        self.partitions = PARTITIONS
        self.consumers: dict[str, Consumer] = {}
        self._lives = 0

    def next_life(self) -> int:
        self._lives += 1
        return self._lives

    async def join(self, name: str, streams: int = 1, **settings: Any) -> Consumer:
        consumer = self.consumers[name] = Consumer(self, name, streams, settings)
        await consumer.start()
        return consumer

    async def create_topic(self) -> None:
        topic = create_topics.Topic(
            name=TOPIC, num_partitions=self.partitions, replication_factor=3
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)

        async def ask() -> bool | None:
            for node in NODES:
                answer = await self.cluster.ask(node, request, 5)
                if answer is not None and answer.topics[0].error_code in (0, 36):
                    return True
            return None

        await eventually(ask)

    async def add_partition(self) -> None:
        """One more, which the group is to notice."""
        topic = create_partitions.Topic(name=TOPIC, count=self.partitions + 1, assignments=None)
        request = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=5_000)

        async def ask() -> bool | None:
            path = znodes.topic_path(TOPIC)
            data = self.cluster.ensemble.tree.nodes[path].data
            if len(znodes.TopicAssignment.from_json(data).partitions) > self.partitions:
                return True
            for node in NODES:
                await self.cluster.ask(node, request, 3)
            return None

        await eventually(ask)
        self.partitions += 1

    async def produce_all_the_time(self) -> None:
        """Numbered records in turn to all partitions, acknowledged by all replicas or not."""
        number = 0
        while True:
            leaders = await self._leaders()
            for partition, node in leaders.items():
                number += 1
                records = batch.build_batch(
                    [(b"k", b"%d" % number)], timestamp_ms=self.cluster.loop.wall_ms()
                )
                data = produce.Partition(index=partition, records=bytes(records))
                topic = produce.Topic(name=TOPIC, partition_data=[data])
                request = produce.ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=[topic])
                await self.cluster.ask(node, request, 7)
            await asyncio.sleep(self.cluster.loop.random.uniform(0.1, 0.4))

    async def ends(self) -> dict[TopicPartition, int]:
        """The high watermark of every partition, once all leaders tell."""

        async def ask() -> dict[TopicPartition, int] | None:
            leaders = await self._leaders()
            found: dict[TopicPartition, int] = {}
            for partition, node in leaders.items():
                asked = list_offsets.Partition(partition_index=partition, timestamp=-1)
                topic = list_offsets.Topic(name=TOPIC, partitions=[asked])
                request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
                answer = await self.cluster.ask(node, request, 4)
                if answer is not None and not answer.topics[0].partitions[0].error_code:
                    topic_partition = TopicPartition(TOPIC, partition)
                    found[topic_partition] = answer.topics[0].partitions[0].offset
            return found if len(found) == self.partitions else None

        return await eventually(ask)

    async def settled(self) -> None:
        """Return when every partition has one owner, a thread of a consumer that lives."""

        async def ask() -> bool | None:
            return True if self._is_settled() else None

        await eventually(ask)

    async def everything_processed(self) -> None:
        """Return when every record up to the end was processed, and nothing else was."""
        ends = await self.ends()

        async def ask() -> bool | None:
            done = self.journal.processed
            return (
                True
                if all(
                    done[topic_partition] == set(range(ends[topic_partition]))
                    for topic_partition in ends
                )
                else None
            )

        await eventually(ask)

    def _is_settled(self) -> bool:
        tree = self.cluster.ensemble.tree
        claimed = {
            topic_partition: thread
            for consumer in self.consumers.values()
            for topic_partition, thread in consumer.connector.owned.items()
        }
        topic_partitions = [TopicPartition(TOPIC, number) for number in range(self.partitions)]
        return all(
            tree.nodes[path].data.decode() == claimed.get(topic_partition)
            if (path := znodes.consumer_owner_path(GROUP, *topic_partition)) in tree.nodes
            else False
            for topic_partition in topic_partitions
        ) and sum(len(consumer.connector.owned) for consumer in self.consumers.values()) == len(
            topic_partitions
        )

    async def _leaders(self) -> dict[int, int]:
        request = metadata.MetadataRequest(topics=[metadata.Topic(name=TOPIC)])
        for node in self.cluster.loop.random.sample(NODES, len(NODES)):
            if not self.cluster.machines[node].is_up:
                continue
            answer = await self.cluster.ask(node, request, 9)
            if answer is not None and answer.topics and answer.topics[0].partitions:
                return {
                    partition.partition_index: partition.leader_id
                    for partition in answer.topics[0].partitions
                    if partition.leader_id in NODES
                }
        return {}
