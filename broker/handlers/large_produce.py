"""Produce requests with large batches: checked beside the loop, appended in their order.

While one of them is under way for a partition, whatever comes for that partition queues behind
it, from whichever connection: records stay in the order in which they came.
Source: log.md sections 1.8 and 1.9; design decision 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from barnabas.protocol.errors import Refused
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records.validate import Prepared, ProduceRules

from .call import Answer, Call, Parked
from .conversions import Conversions, is_large_to_append

Place = tuple[str, int]
"""Topic and partition."""


class Checked(NamedTuple):
    """A batch that was checked elsewhere, or why it is refused."""

    rules: ProduceRules
    outcome: Prepared | Refused | None


Ready = Mapping[Place, Checked]
RulesOf = Callable[[str, int], ProduceRules | None]
"""None where nothing can be appended: the reason is found again when that is tried."""


class LargeProduce:
    """Who is before whom, for the partitions that a large batch is on its way to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversions: Conversions,
        *,
        rules_of: RulesOf,
        now_ms: Callable[[], int],
        append: Callable[[Call, Ready], Answer],
    ) -> None:
        self._loop = loop
        self._conversions = conversions
        self._rules_of = rules_of
        self._now_ms = now_ms
        self._append = append
        self._last: dict[Place, asyncio.Future[None]] = {}

    def takes(self, request: messages.ProduceRequest) -> bool:
        """Whether the request is large, or comes behind one that is."""
        for topic in request.topic_data:
            for wanted in topic.partition_data:
                if is_large_to_append(wanted.records):
                    return True
                if self._last and (topic.name, wanted.index) in self._last:
                    return True
        return False

    def later(self, call: Call) -> Coroutine[Any, Any, Answer]:
        """Take the request's place in every queue, now; await the result to have it served."""
        turn = self._loop.create_future()
        before = []
        for topic in call.request.topic_data:
            for wanted in topic.partition_data:
                if wanted.records is not None:  # whose memory is the connection's
                    wanted.records = bytes(wanted.records)
                place = topic.name, wanted.index
                if place in self._last:
                    before.append(self._last[place])
                self._last[place] = turn
        return self._serve(call, turn, before)

    async def _serve(
        self, call: Call, turn: asyncio.Future[None], before: list[asyncio.Future[None]]
    ) -> Answer:
        try:
            ready = await self._check(call)
            if before:
                await asyncio.wait(before)
            answer = self._append(call, ready)
        finally:
            turn.set_result(None)
            for place in [place for place, last in self._last.items() if last is turn]:
                del self._last[place]
        return await _final(answer, self._loop)

    async def _check(self, call: Call) -> Ready:
        ready = {}
        for topic in call.request.topic_data:
            for wanted in topic.partition_data:
                rules = self._rules_of(topic.name, wanted.index)
                if rules is not None and is_large_to_append(wanted.records):
                    outcome = await self._outcome(wanted.records, call.version, rules)
                    ready[topic.name, wanted.index] = Checked(rules, outcome)
        return ready

    async def _outcome(
        self, records: bytes, version: int, rules: ProduceRules
    ) -> Prepared | Refused | None:
        try:
            return await self._conversions.prepare(
                records, produce_version=version, rules=rules, now_ms=self._now_ms()
            )
        except Refused as refusal:
            return refusal


async def _final(answer: Answer, loop: asyncio.AbstractEventLoop) -> Answer:
    """An answer that is still to come, awaited."""
    if not isinstance(answer, Parked):
        return answer
    if not answer.is_resolved:
        told = loop.create_future()
        answer.then(lambda _: told.set_result(None))
        await told
    return answer.answer
