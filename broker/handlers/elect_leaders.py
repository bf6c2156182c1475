"""ElectLeaders: served by the controller's node, answered when it knows the new leaders.

Source: docs/spec/cluster.md §2.6; Kafka 3.9 KafkaApis; KIP-183, KIP-460.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from barnabas.broker.controller.components import ControllerComponents
from barnabas.broker.controller.context import Partition
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.elect_leaders import ElectionOutcome
from barnabas.broker.controller.partition_state_znodes import chunks
from barnabas.broker.metadata.metadata_cache import MetadataCache, Snapshot
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import elect_leaders as messages

from .call import Call, Handler
from .cooperative import Turn

PREFERRED: Final = 0
UNCLEAN: Final = 1
"""Kinds of elections, in Kafka's numbers."""
AT_ONCE: Final = 1000
"""Partitions that the controller is asked about before it looks at what else happened."""


class ElectLeadersHandler:
    """Has the controller elect, then waits for this node to hear of it."""

    def __init__(self, controller: Controller, cache: MetadataCache) -> None:
        self._controller = controller
        self._cache = cache

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.ELECT_LEADERS: self.elect}

    async def elect(self, call: Call) -> messages.ElectLeadersResponse:
        """Elect leaders; each partition has its own code.

        Where all partitions are asked for, those that need no election are left out.
        """
        request: messages.ElectLeadersRequest = call.request
        if request.election_type not in (PREFERRED, UNCLEAN):
            return await _refused(request, ErrorCode.INVALID_REQUEST)
        deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        asked = None
        if request.topic_partitions is not None:
            asked = await _each_once(request)
        try:
            outcomes = await self._elected(asked, is_unclean=request.election_type == UNCLEAN)
        except Refused as refusal:
            return await _refused(request, refusal.code)
        if asked is None:
            outcomes = {
                partition: outcome
                for partition, outcome in sorted(outcomes.items())
                if outcome.code is not ErrorCode.ELECTION_NOT_NEEDED
            }
        for partition in await self._unknown(outcomes, deadline):
            reason = f"not known here within {request.timeout_ms} ms"
            outcomes[partition] = ElectionOutcome(ErrorCode.REQUEST_TIMED_OUT, reason)
        return messages.ElectLeadersResponse(replica_election_results=await _results(outcomes))

    async def _elected(
        self, asked: Sequence[Partition] | None, *, is_unclean: bool
    ) -> dict[Partition, ElectionOutcome]:
        """So many at a time, so that the controller sees to other things in between."""
        outcomes: dict[Partition, ElectionOutcome] = {}
        parts = [asked] if not asked else chunks(asked, AT_ONCE)
        for part in parts:
            work = partial(_elect, part, is_unclean)
            outcomes |= await self._controller.ask("elect leaders", work)
            await asyncio.sleep(0)
        return outcomes

    async def _unknown(
        self, outcomes: Mapping[Partition, ElectionOutcome], deadline: float
    ) -> list[Partition]:
        """The partitions whose new leader this node does not know in time."""
        elected = {
            partition: outcome.leader
            for partition, outcome in outcomes.items()
            if outcome.code is ErrorCode.NONE
        }

        def missing(snapshot: Snapshot) -> list[Partition]:
            return [p for p, leader in elected.items() if snapshot.leader(*p) != leader]

        left_s = deadline - asyncio.get_running_loop().time()
        if elected and left_s > 0:
            await self._cache.wait_until(lambda snapshot: not missing(snapshot), left_s)
        return missing(self._cache.snapshot)


async def _elect(
    part: Sequence[Partition] | None, is_unclean: bool, components: ControllerComponents
) -> Mapping[Partition, ElectionOutcome]:
    return await components.elections.elect(part, is_unclean=is_unclean)


async def _each_once(request: messages.ElectLeadersRequest) -> list[Partition]:
    wanted: dict[Partition, None] = {}
    turn = Turn()
    for partition in _named(request):
        wanted[partition] = None
        await turn.step()
    return list(wanted)


def _named(request: messages.ElectLeadersRequest) -> Iterable[Partition]:
    for topic in request.topic_partitions or ():
        for index in topic.partitions:
            yield topic.topic, index


async def _refused(
    request: messages.ElectLeadersRequest, code: ErrorCode
) -> messages.ElectLeadersResponse:
    """Version 0 has no code for the request as a whole: each partition tells it."""
    outcome, turn = ElectionOutcome(code), Turn()
    outcomes = {}
    for partition in _named(request):
        outcomes[partition] = outcome
        await turn.step()
    return messages.ElectLeadersResponse(
        error_code=code, replica_election_results=await _results(outcomes)
    )


async def _results(outcomes: Mapping[Partition, ElectionOutcome]) -> list[messages.TopicResult]:
    """In the order of the outcomes."""
    topics: dict[str, list[messages.PartitionResult]] = {}
    turn = Turn()
    for (topic, index), outcome in outcomes.items():
        await turn.step()
        topics.setdefault(topic, []).append(
            messages.PartitionResult(
                partition_id=index, error_code=outcome.code, error_message=outcome.message or None
            )
        )
    return [
        messages.TopicResult(topic=topic, partition_result=results)
        for topic, results in topics.items()
    ]
