"""Counts what consumers are sent of each topic, once an answer, when all of it is read."""

from __future__ import annotations

from barnabas.broker.replication.topic_traffic import TrafficByTopic

from .cooperative import map_in_turns
from .fetch_sessions import FetchContext, PartitionRead


def count_sent(traffic: TrafficByTopic, context: FetchContext) -> None:
    """Count the answer of a fetch; what followers are sent is not counted."""
    if not context.is_by_follower:
        for read in context.reads:
            _count(traffic, read)


async def count_sent_in_turns(traffic: TrafficByTopic, context: FetchContext) -> None:
    """The same for an answer of very many partitions."""
    if not context.is_by_follower:
        await map_in_turns(lambda read: _count(traffic, read), context.reads)


def _count(traffic: TrafficByTopic, read: PartitionRead) -> None:
    if count := len(read.result.records or b""):
        traffic.of(read.topic).bytes_out += count
