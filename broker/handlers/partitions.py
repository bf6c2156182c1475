"""CreatePartitions: served by the controller's node, answered when all know of the new ones.

Source: cluster.md section 2.9.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from barnabas.broker.controller.growth import TopicGrowth
from barnabas.broker.metadata import MetadataCache, Snapshot
from barnabas.client.ensemble import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import create_partitions as messages
from barnabas.protocol.names import check_topic

from .call import Call, Handler
from .topics import OTHERS_S, elsewhere, late, unreachable


class PartitionsHandler:
    """Judges each topic by itself; waits until this node knows a leader of each new partition."""

    def __init__(
        self,
        growth: TopicGrowth,
        cache: MetadataCache,
        *,
        is_controller: Callable[[], bool],
        heard: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._growth = growth
        self._cache = cache
        self._is_controller = is_controller
        self._heard = heard

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.CREATE_PARTITIONS: self.create}

    async def create(self, call: Call) -> messages.CreatePartitionsResponse:
        """Add partitions; each topic has its own code."""
        request: messages.CreatePartitionsRequest = call.request
        deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        counts = Counter(topic.name for topic in request.topics)
        results: dict[str, messages.TopicResult] = {}
        grown: dict[str, int] = {}
        for topic in request.topics:
            if topic.name in results:
                continue
            results[topic.name] = messages.TopicResult(name=topic.name)
            try:
                if counts[topic.name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice")
                check_topic(topic.name)
                grown[topic.name] = await self._grow(topic, is_dry=request.validate_only)
            except Refused as refusal:
                _refuse(results[topic.name], refusal)
        if not request.validate_only:
            for name in await self._unled(grown, deadline):
                _refuse(results[name], late(request.timeout_ms))
        return messages.CreatePartitionsResponse(results=list(results.values()))

    async def _grow(self, topic: messages.Topic, *, is_dry: bool) -> int:
        if not self._is_controller():
            raise elsewhere()
        chosen = None
        if topic.assignments is not None:
            chosen = [each.broker_ids for each in topic.assignments]
        try:
            return await self._growth.grow(topic.name, topic.count, chosen, is_dry=is_dry)
        except ZooKeeperError as error:
            raise unreachable(error) from error

    async def _unled(self, grown: Mapping[str, int], deadline: float) -> list[str]:
        """The topics of which this node does not know every leader in time."""

        def missing(snapshot: Snapshot) -> list[str]:
            return [
                name
                for name, count in grown.items()
                if any(snapshot.leader(name, index) is None for index in range(count))
            ]

        loop = asyncio.get_running_loop()
        left_s = deadline - loop.time()
        if left_s <= 0 or not grown:
            return list(grown)
        await self._cache.wait_until(lambda snapshot: not missing(snapshot), left_s)
        left_s = deadline - loop.time()
        if left_s > 0:
            await self._heard(min(left_s, OTHERS_S))
        return missing(self._cache.snapshot)


def _refuse(result: messages.TopicResult, refusal: Refused) -> None:
    result.error_code, result.error_message = refusal.code, refusal.message or None
