"""An internal topic, ``__barnabas_audit`` for one, as this node writes it: over the network.

Every node has something to tell, but only some lead a partition of the topic: records go to the
leaders' INTERNAL listeners, this node's own included, as a producer sends them.
Source: docs/spec/coordinator.md §3.8; docs/spec/cluster.md §2.10.1 (which nodes host it).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import Disconnected, KafkaError, known_code
from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import keyed_partition
from barnabas.protocol.messages import produce
from barnabas.protocol.records.batch import build_batch

log = logging.getLogger(__name__)

WAIT_MS: Final = 10_000
"""How long the in-sync replicas may take."""
_STOPPED: Final = "this node stops"

Dial = Callable[[str, int], Awaitable[Connection]]
Locate = Callable[[int], tuple[str, int] | None]
Entry = tuple[bytes, bytes | None]


class AuditTopicWriter:
    """Implements coordinator.ports.AuditLog; the topic is created when there is something for it.

    A record whose writer was not sure that it arrived is written again, and stands there twice.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        *,
        create: Callable[[str], object],
        dial: Dial,
        locate: Locate,
        now_ms: Callable[[], int],
        topic: str = AUDIT_TOPIC,
    ) -> None:
        """``locate`` gives the INTERNAL endpoint of a node; ``create`` has a topic made soon."""
        self._topic = topic
        self._metadata = metadata
        self._create = create
        self._dial = dial
        self._locate = locate
        self._now_ms = now_ms
        self._links: dict[tuple[str, int], Connection] = {}
        self._dialling = asyncio.Lock()
        self._is_closed = False

    async def write(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Append the entries; gives back those that must be tried again."""
        count = len(self._metadata.snapshot.topics.get(self._topic, ()))
        if not count:
            self._create(self._topic)
            return entries
        by_partition: dict[int, list[Entry]] = {}
        for entry in entries:
            by_partition.setdefault(keyed_partition(entry[0], count), []).append(entry)
        done = await asyncio.gather(*(self._append(*entries) for entries in by_partition.items()))
        left = zip(by_partition.values(), done, strict=True)
        return [entry for part, is_done in left if not is_done for entry in part]

    async def close(self) -> None:
        """Close the connections; nothing is written any more."""
        self._is_closed = True
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    async def _append(self, partition: int, entries: Sequence[Entry]) -> bool:
        """Whether they are committed; a failure is logged, and no more than that."""
        leader = self._metadata.snapshot.leader(self._topic, partition)
        address = None if leader is None else self._locate(leader)
        if address is None:
            return False
        data = bytes(build_batch(entries, timestamp_ms=self._now_ms()))
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=WAIT_MS,
            topic_data=[
                produce.Topic(
                    name=self._topic,
                    partition_data=[produce.Partition(index=partition, records=data)],
                )
            ],
        )
        try:
            link = await self._link(address)
            answer = await link.request(request, timeout_ms=2 * WAIT_MS)
        except KafkaError as error:
            log.debug("could not write partition=%s-%d: %s", self._topic, partition, error)
            return False
        codes = [
            known_code(partition.error_code)
            for topic in answer.responses
            for partition in topic.partition_responses
        ]
        if codes != [ErrorCode.NONE]:
            log.debug("could not write partition=%s-%d: %s", self._topic, partition, codes)
            return False
        return True

    async def _link(self, address: tuple[str, int]) -> Connection:
        async with self._dialling:  # several partitions may have one leader
            link = self._links.get(address)
            if link is not None and not link.is_closed:
                return link
            if self._is_closed:
                raise Disconnected(_STOPPED)
            link = await self._dial(*address)
            if self._is_closed:
                await link.close()
                raise Disconnected(_STOPPED)
            self._links[address] = link
            return link
