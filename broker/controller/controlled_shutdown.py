"""Controlled shutdown, the controller's side: a node that wants to stop leads nothing first.

Source: docs/spec/cluster.md §2.8.
"""

from __future__ import annotations

import logging

from barnabas.protocol.errors import ErrorCode

from .context import Partition
from .term import ControllerTerm

log = logging.getLogger(__name__)


class ControlledShutdowns:
    """Moves leadership away from nodes that are about to stop."""

    def __init__(self, term: ControllerTerm) -> None:
        self._term = term
        self._context = term.context

    async def prepare(self, node: int, epoch: int) -> tuple[ErrorCode, list[Partition]]:
        """Empty a node as far as other replicas allow; also what it leads still.

        ``epoch`` is the broker epoch it registered with, -1 when it does not say. What no other
        live node has a replica of stays where it is and is not counted: nothing can come of
        asking again, while a replica that is not in sync may still catch up. Kafka counts all.
        """
        known = self._context.nodes.get(node)
        if known is None:
            return ErrorCode.BROKER_NOT_AVAILABLE, []
        if 0 <= epoch < known.epoch:
            return ErrorCode.STALE_BROKER_EPOCH, []
        log.info("prepared the stop of a node node=%d", node)
        self._context.shutting_down.add(node)
        hosted = [
            replica[:2]
            for replica in self._term.without_deleting_topics(self._context.replicas_on([node]))
            if len(self._context.assigned(replica[:2])) > 1
        ]
        led = [partition for partition in hosted if self._leads(node, partition)]
        batch = self._term.batch()
        await self._term.partitions.elect(led, self._term.partitions.controlled_shutdown, batch)
        batch.send()
        leading = set(led)
        followed = [(*p, node) for p in hosted if p not in leading]
        await self._term.replicas.go_offline(followed, batch)
        batch.send()
        return ErrorCode.NONE, [
            partition
            for partition in led
            if self._leads(node, partition) and self._has_heirs(partition)
        ]

    def _has_heirs(self, partition: Partition) -> bool:
        context = self._context
        return any(context.is_online(node, partition) for node in context.assigned(partition))

    def _leads(self, node: int, partition: Partition) -> bool:
        state = self._context.leaders.get(partition)
        return state is not None and state.leader == node
