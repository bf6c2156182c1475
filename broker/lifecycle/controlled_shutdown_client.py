"""A node that is about to stop asks the controller to do without it: to lead, and to follow.

Source: docs/spec/cluster.md §2.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from barnabas.broker.controller.channel_manager import Dial
from barnabas.broker.metadata.metadata_cache import MetadataCache, Snapshot
from barnabas.broker.settings.node_config import ControllerSettings
from barnabas.client.errors import KafkaError
from barnabas.client.zookeeper.interface import SessionState, ZooKeeper, ZooKeeperError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import controlled_shutdown as messages
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

VERSION = 3
WAIT_MS = 5000
"""How long one question may take, the connection included; a node that stops must not hang."""

TopicPartition = tuple[str, int]
"""Topic and index of a partition."""


class ControlledShutdownClient:
    """Leaves in order, as far as a controller is there to arrange it."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        dial: Dial,
        zookeeper: ZooKeeper,
        settings: ControllerSettings,
        internal_listener: str,
        *,
        shares_replicas: Callable[[], bool],
    ) -> None:
        """``shares_replicas`` says whether anything hosted here has a replica elsewhere."""
        self._node_id = node_id
        self._metadata = metadata
        self._dial = dial
        self._zookeeper = zookeeper
        self._settings = settings
        self._internal_listener = internal_listener
        self._shares_replicas = shares_replicas

    async def hand_over(self, broker_epoch: int) -> None:
        """Try until nothing that others could lead is led here, or the tries are used up.

        What no other live node has a replica of is not waited for. Nothing is once this node is
        the last one, nor without ZooKeeper: then no controller can arrange anything.
        """
        if not self._settings.controlled_shutdown_enable or not self._shares_replicas():
            return
        over = asyncio.Event()
        self._zookeeper.on_state.append(lambda state: None if _is_there(state) else over.set())
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self._ask_repeatedly(broker_epoch), name="announcement")
            asking.add_done_callback(lambda _: over.set())
            if _is_there(self._zookeeper.state):
                await over.wait()
            if not asking.done():
                log.warning("leaves without handing over: there is no connection to zookeeper")
                asking.cancel()

    async def _ask_repeatedly(self, broker_epoch: int) -> None:
        tries = self._settings.controlled_shutdown_max_retries + 1
        for left in reversed(range(tries)):
            remaining: Sequence[TopicPartition] = ()
            try:
                async with asyncio.timeout(WAIT_MS / 1000):
                    remaining = self._with_other_replicas(await self._ask(broker_epoch))
            except (KafkaError, OSError) as error:
                log.warning("could not announce the shutdown tries_left=%d: %s", left, error)
            else:
                if not remaining:
                    return
                log.info("still leading partitions=%d tries_left=%d", len(remaining), left)
            if left and not await self._may_change(remaining):
                log.info("leaves without handing over: no other node is registered")
                return

    def _with_other_replicas(
        self, remaining: Iterable[messages.RemainingPartition]
    ) -> list[TopicPartition]:
        """Those that another live node has a replica of; a controller of Kafka names all."""
        snapshot = self._metadata.snapshot
        topic_partitions = [
            (partition.topic_name, partition.partition_index) for partition in remaining
        ]
        return [
            topic_partition
            for topic_partition in topic_partitions
            if self._other_live_replicas(snapshot, topic_partition)
        ]

    def _other_live_replicas(self, snapshot: Snapshot, topic_partition: TopicPartition) -> set[int]:
        found = snapshot.partition(*topic_partition)
        replicas = () if found is None else set(found.replicas) - set(found.offline)
        return set(replicas) & snapshot.brokers.keys() - {self._node_id}

    async def _may_change(self, remaining: Sequence[TopicPartition]) -> bool:
        """Wait until asking again may help, the back-off at most; False when nobody is left."""
        gone = asyncio.Event()
        try:
            if not await self._others_registered(gone):
                return False
        except ZooKeeperError as error:
            log.info("could not read who is registered: %r", error)
        former = self._metadata.snapshot
        behind = [
            topic_partition
            for topic_partition in remaining
            if not self._in_sync(former, topic_partition)
        ]

        def is_other(snapshot: Snapshot) -> bool:
            """Another controller, other nodes, or a replica that is in sync by now."""
            return (
                snapshot.controller_id not in (former.controller_id, None)
                or snapshot.brokers.keys() != former.brokers.keys()
                or any(self._in_sync(snapshot, topic_partition) for topic_partition in behind)
            )

        backoff_s = self._settings.controlled_shutdown_retry_backoff_ms / 1000
        waits = [
            asyncio.ensure_future(self._metadata.wait_until(is_other, backoff_s)),
            asyncio.ensure_future(gone.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return True

    async def _others_registered(self, gone: asyncio.Event) -> bool:
        """Whether any other node is; ``gone`` is set when somebody comes or goes."""
        names = await self._zookeeper.children(znodes.BROKER_IDS, gone.set)
        return bool(set(names) - {str(self._node_id)})

    def _in_sync(self, snapshot: Snapshot, topic_partition: TopicPartition) -> bool:
        found = snapshot.partition(*topic_partition)
        return found is not None and bool(
            self._other_live_replicas(snapshot, topic_partition) & set(found.isr)
        )

    async def _ask(self, broker_epoch: int) -> Sequence[messages.RemainingPartition]:
        snapshot = self._metadata.snapshot
        if snapshot.controller_id is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller is known")
        address = snapshot.endpoint(snapshot.controller_id, self._internal_listener)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the controller's address is unknown")
        link = await self._dial(*address)
        try:
            request = messages.ControlledShutdownRequest(
                broker_id=self._node_id, broker_epoch=broker_epoch
            )
            answer = await link.request(request, VERSION, WAIT_MS)
        finally:
            await link.close()
        if answer.error_code:
            raise KafkaError(answer.error_code, "the controller refused")
        remaining: Sequence[messages.RemainingPartition] = answer.remaining_partitions
        return remaining


def _is_there(state: SessionState) -> bool:
    return state is SessionState.CONNECTED
