"""The handlers of records, put together: produce, fetch, offsets by time, deletion, epochs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from barnabas.broker.storage.log_manager import LogManager

from .handlers.call import Handler
from .handlers.conversion_process import ConversionProcess
from .handlers.delete_records import DeleteRecordsHandler
from .handlers.fetch import FetchHandler
from .handlers.fetch_sessions import FetchSessionCache
from .handlers.fetch_topic_ids import FetchTopicIds
from .handlers.leader_hints import LeaderHints
from .handlers.list_offsets import ListOffsetsHandler
from .handlers.offset_for_leader_epoch import LeaderEpochsHandler
from .handlers.produce import ProduceHandler
from .handlers.stale_leaders import StaleLeaders
from .metadata.metadata_cache import MetadataCache
from .replication.replica_manager import ReplicaManager
from .settings.node_config import NodeConfig


class Handlers(Protocol):
    """Whatever serves some APIs."""

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""


def data_plane(
    config: NodeConfig,
    *,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    logs: LogManager,
    conversions: ConversionProcess,
    room: Callable[[], int],
    holds_lease: Callable[[], bool],
    loop: asyncio.AbstractEventLoop,
    now_ms: Callable[[], int],
    rng: random.Random,
) -> Iterable[Handlers]:
    """One handler an area; ``room`` says how many bytes of answers may still be made."""
    slots = config.replication.fetch_session_slots
    leaders = LeaderHints(metadata, replicas)
    replaced = StaleLeaders(holds_lease)
    return (
        ProduceHandler(
            replicas, loop=loop, now_ms=now_ms, conversions=conversions, leaders=leaders
        ),
        FetchHandler(
            replicas,
            loop=loop,
            bytes_max=config.network.fetch_max_bytes,
            room=room,
            sessions=FetchSessionCache(slots, now=loop.time, rng=rng),
            topic_ids=FetchTopicIds(metadata, leaders),
            replaced=replaced,
            conversions=conversions,
        ),
        ListOffsetsHandler(replicas, conversions),
        DeleteRecordsHandler(replicas, logs.write_log_starts, loop=loop),
        LeaderEpochsHandler(replicas, replaced),
    )
