"""What the controller orders, and the one thing a node asks of it: leave to stop.

Source: docs/spec/cluster.md §2.2 (epochs), §2.8 and §2.14. Served on the inter-broker listener
only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from barnabas.broker.controller.context import Partition
from barnabas.broker.controller.controller import Controller
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import (
    ReplicaManager,
    RequestCheck,
    refused_roles,
    refused_stops,
)
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.storage.cooperative import in_slices
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)

from .call import Answer, Call, Handler, PendingResponse

log = logging.getLogger(__name__)


class ControlPlaneHandler:
    """Takes orders of the newest controller, meant for this life of the node, and of no other.

    ``broker_epoch`` gives the czxid of our registration, -1 before the first.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        cache: MetadataCache,
        configs: TopicConfigs,
        controller: Controller,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._cache = cache
        self._configs = configs
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._turn = asyncio.Lock()
        """Replicas obey one order after another, as they came; news never wait for orders."""

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.LEADER_AND_ISR: self.lead,
            ApiKey.STOP_REPLICA: self.stop,
            ApiKey.UPDATE_METADATA: self.learn,
            ApiKey.CONTROLLED_SHUTDOWN: self.prepare_stop,
        }

    async def lead(self, call: Call) -> Answer:
        """Lead or follow partitions; the settings of new topics are read before their logs open.

        In slices: a log takes up to a millisecond to make, and an order may name thousands.
        Without ZooKeeper they cannot be read: then the connection ends, and the order comes again.
        """
        request: leader_and_isr.LeaderAndIsrRequest = call.request
        judge = self._judge_of(request)
        async with self._turn:
            if code := judge():
                return refused_roles(code)
            try:
                await self._read_settings(request)
            except ZooKeeperError as error:
                log.warning("put an order off: settings cannot be read: %r", error)
                call.peer.close()
                return None
            return await in_slices(self._replicas.apply_leader_and_isr(request, judge))

    async def _read_settings(self, request: leader_and_isr.LeaderAndIsrRequest) -> None:
        await self._configs.read(
            topic.topic_name
            for topic in request.topic_states
            if any(self._is_new(topic.topic_name, state) for state in topic.partition_states)
        )

    async def stop(self, call: Call) -> Answer:
        """Stop serving replicas, perhaps for ever."""
        request: stop_replica.StopReplicaRequest = call.request
        judge = self._judge_of(request)
        async with self._turn:
            if code := judge():
                return refused_stops(code)
            answer = await in_slices(self._replicas.stop(request, judge))
            await self._replicas.have_deleted(answer)
            return answer

    def learn(self, call: Call) -> update_metadata.UpdateMetadataResponse:
        """Take the news about nodes and partitions."""
        request: update_metadata.UpdateMetadataRequest = call.request
        code = self._judge(request.controller_epoch, request.broker_epoch)
        if not code:
            self._cache.update(request)
        return update_metadata.UpdateMetadataResponse(error_code=code)

    def prepare_stop(self, call: Call) -> PendingResponse:
        """Have the controller, if this is its node, move leadership from a node that stops."""
        request: controlled_shutdown.ControlledShutdownRequest = call.request
        pending = PendingResponse()

        def prepared(code: ErrorCode, remaining: list[Partition]) -> None:
            pending.respond(
                controlled_shutdown.ControlledShutdownResponse(
                    error_code=code,
                    remaining_partitions=[
                        controlled_shutdown.RemainingPartition(
                            topic_name=topic, partition_index=index
                        )
                        for topic, index in remaining
                    ],
                )
            )

        self._controller.prepare_shutdown(request.broker_id, request.broker_epoch, prepared)
        return pending

    def _judge_of(
        self, request: leader_and_isr.LeaderAndIsrRequest | stop_replica.StopReplicaRequest
    ) -> RequestCheck:
        return lambda: self._judge(request.controller_epoch, request.broker_epoch)

    def _judge(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """A broker epoch of -1 is not known to the sender; a larger one is only newer news."""
        if controller_epoch < self._cache.controller_epoch:
            log.warning("refused a controller of the past epoch=%d", controller_epoch)
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if 0 <= broker_epoch < self._broker_epoch():
            log.warning("refused an order to a former life of this node epoch=%d", broker_epoch)
            return ErrorCode.STALE_BROKER_EPOCH
        self._cache.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _is_new(self, topic: str, state: leader_and_isr.PartitionState) -> bool:
        return self._replicas.get(topic, state.partition_index) is None
