"""CreatePartitions: served by the controller's node, answered when all know of the new ones.

Source: docs/spec/cluster.md §2.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from barnabas.broker.controller.create_partitions import PartitionCreator
from barnabas.broker.controller.create_topics import PARTITIONS_MAX
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.quota.controller_mutation import ControllerMutationQuotas, MutationQuota
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import create_partitions as messages
from barnabas.protocol.names import check_topic

from .call import Call, Handler
from .cooperative import Turn, shortened
from .throttled_calls import mutation_quota, throttled
from .topics import OTHERS_S, LedTopics, counted, elsewhere, is_led, late
from .zookeeper_failures import unreachable

STRICT_SINCE: Final = 3
"""From here a client knows that it is over its quota (89, KIP-599)."""


class CreatePartitionsHandler:
    """Judges each topic by itself; waits until this node knows a leader of each new partition."""

    def __init__(
        self,
        growth: PartitionCreator,
        cache: MetadataCache,
        *,
        is_controller: Callable[[], bool],
        heard: Callable[[float], Awaitable[bool]],
        mutations: ControllerMutationQuotas | None = None,
    ) -> None:
        """``mutations`` None: nobody's changes are bound."""
        self._mutations = mutations
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
        quota = mutation_quota(self._mutations, call, strict_since=STRICT_SINCE)
        counts, turn = await counted(topic.name for topic in request.topics), Turn()
        results: dict[str, messages.TopicResult] = {}
        grown: dict[str, int] = {}
        for topic in request.topics:
            await turn.step()
            if topic.name in results:
                continue
            results[topic.name] = messages.TopicResult(name=topic.name)
            try:
                if counts[topic.name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"{topic.name} is named twice")
                check_topic(topic.name)
                grown[topic.name] = await self._grow(topic, quota, is_dry=request.validate_only)
            except Refused as refusal:
                _refuse(results[topic.name], refusal)
        if not request.validate_only:
            for name in await self._unled(grown, deadline):
                _refuse(results[name], late(request.timeout_ms))
        answer = messages.CreatePartitionsResponse(results=list(results.values()))
        throttled(call, answer, quota.throttle_ms)
        return answer

    async def _grow(self, topic: messages.Topic, quota: MutationQuota, *, is_dry: bool) -> int:
        if not self._is_controller():
            raise elsewhere()
        chosen = None
        if topic.assignments is not None:
            if len(topic.assignments) > PARTITIONS_MAX:
                reason = f"at most {PARTITIONS_MAX} partitions fit into a topic's znode"
                raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
            chosen = [assignment.broker_ids for assignment in topic.assignments]
        try:
            return await self._growth.grow(
                topic.name, topic.count, chosen, is_dry=is_dry, pay=quota.record
            )
        except ZooKeeperError as error:
            raise unreachable(error) from error

    async def _unled(self, grown: Mapping[str, int], deadline: float) -> list[str]:
        """The topics of which this node does not know every leader in time."""

        loop = asyncio.get_running_loop()
        left_s = deadline - loop.time()
        if left_s <= 0 or not grown:
            return list(grown)
        await self._cache.wait_until(LedTopics(grown).are_all_in, left_s)
        left_s = deadline - loop.time()
        if left_s > 0:
            await self._heard(min(left_s, OTHERS_S))
        return [name for name in grown if not is_led(self._cache.snapshot, name, grown[name])]


def _refuse(result: messages.TopicResult, refusal: Refused) -> None:
    result.error_code, result.error_message = refusal.code, shortened(refusal.message) or None
