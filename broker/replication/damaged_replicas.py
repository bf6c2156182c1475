"""Damaged replicas: copied anew where another one is in sync, reported where none is.

A replica with damage below the recovery point is given up before it is mended: this node answers
KAFKA_STORAGE_ERROR for it, so the controller takes it out of the in-sync set, elects another leader
and sends StopReplica. Only then the replica asks to be let in again, as a follower that drops what
is damaged (fetch_response.py) and copies it. So nobody counts on a copy that lacks what it
acknowledged.
The last replica in sync is never given up: it serves all that can be read of it.

Source: docs/spec/cluster.md §2.6 (log directory failures); docs/decisions/0009.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.broker.storage.recovery.damage import damaged_offsets, is_damaged

from .partition import Partition
from .replica_manager import ReplicaManager

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""In-sync sets grow again, and what was asked for may get lost with a controller."""


class DamagedReplicas:
    """Looks at the damaged replicas of a node; :meth:`run` until cancelled."""

    def __init__(self, replicas: ReplicaManager, tell: Callable[[], None]) -> None:
        """``tell`` has the controller ask which replicas this node serves."""
        self._replicas = replicas
        self._tell = tell
        self._wake = asyncio.Event()
        self._told: dict[tuple[str, int], str] = {}
        """What the operator was told of."""
        replicas.on_left.append(tell)

    def notice(self) -> None:
        """Damage may have been found: look soon."""
        self._wake.set()

    async def run(self) -> None:
        """Look now and then, and when damage is found."""
        while True:
            self.look()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    def look(self) -> None:
        """Give up what others have, tell of what nobody else has."""
        damaged = {
            (one.topic, one.index): one
            for one in self._replicas
            if not one.log.is_offline and is_damaged(one.log)
        }
        for key in self._told.keys() - damaged.keys():
            del self._told[key]
        for partition in damaged.values():
            if self._may_be_given_up(partition):
                self._replicas.leave(partition)
            else:
                self._report(partition)
        if self._replicas.are_leaving:
            self._tell()

    def _may_be_given_up(self, partition: Partition) -> bool:
        if partition.is_leader:
            return bool(self._replicas.live_peers(partition.isr))
        # One that was not counted on from the beginning mends itself before it fetches.
        return partition.leader_id >= 0 and not partition.is_outside_isr

    def _report(self, partition: Partition) -> None:
        key, damaged = (partition.topic, partition.index), damaged_offsets(partition.log)
        if not partition.is_leader or self._told.get(key) == damaged:
            return
        self._told[key] = damaged
        log.error(
            "serves a damaged log, and no other replica is in sync partition=%s-%d "
            "unreadable_offsets=%s: all other records are served. `barnabas log repair %s` tells "
            "what is lost; with --execute, while the node is stopped, it goes on without that",
            *(*key, damaged, partition.log.directory),
        )
