"""Produce requests that take long: checked beside the loop or in turns, appended in their order.

While one of them is under way for a partition, whatever comes for that partition queues behind
it, from whichever connection: records stay in the order in which they came.

    partition p    large A (being checked) <- small B <- large C      each waits for all before it
    partition q    small D                                            served at once

Without the queue B would be appended before A. The producer of both may be idempotent: B's sequence
number would then be refused as out of order, and one that is not would find its records swapped.
Source: docs/spec/log.md §1.8 and §1.9; §5.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from barnabas.protocol.errors import Refused
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records.batch import Buffer
from barnabas.protocol.records.produce_rules import Prepared, ProduceRules
from barnabas.protocol.records.validate import prepare
from barnabas.protocol.records.work_limit import TooMuchWork, Work

from .call import Answer, Call, PendingResponse, is_coroutine
from .conversion_process import ConversionProcess, is_large_to_append

TopicPartition = tuple[str, int]
"""Topic and partition."""


class ValidatedBatch(NamedTuple):
    """A batch that was checked before its turn to be appended, or why it is refused."""

    rules: ProduceRules | None
    outcome: Prepared | Refused | None
    is_final: bool = False
    """It counts although the rules have changed since: what was sent is not there any more."""


Ready = Mapping[TopicPartition, ValidatedBatch]
ValidatedOf = Callable[[str, messages.Partition], Awaitable[ValidatedBatch | None]]
RulesOf = Callable[[str, int], ProduceRules | None]
"""None where nothing can be appended: the reason is found again when that is tried."""


class LargeProduce:
    """Who is before whom, for the partitions that a large batch is on its way to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversions: ConversionProcess,
        *,
        rules_of: RulesOf,
        now_ms: Callable[[], int],
        append: Callable[[Call, ValidatedOf], Awaitable[Answer]],
    ) -> None:
        self._loop = loop
        self._conversions = conversions
        self._rules_of = rules_of
        self._now_ms = now_ms
        self._append = append
        self._last: dict[TopicPartition, asyncio.Future[None]] = {}

    def takes(self, request: messages.ProduceRequest) -> bool:
        """Whether the request is large, or comes behind one that is."""
        for topic in request.topic_data:
            for wanted in topic.partition_data:
                if is_large_to_append(wanted.records):
                    return True
                # Small ones, too: behind a large one they must not go first.
                if self._last and (topic.name, wanted.index) in self._last:
                    return True
        return False

    def later(self, call: Call, ready: Ready) -> Coroutine[Any, Any, Answer]:
        """Take the request's place in every queue, now; await the result to have it served.

        ``ready`` has the batches that were checked already, maybe in the connection's memory.
        Who was before it is looked up before it enters any queue: it can never wait for itself.
        """
        turn = self._loop.create_future()
        topic_partitions = {}
        for topic in call.request.topic_data:
            for wanted in topic.partition_data:
                if wanted.records is not None:  # whose memory is the connection's
                    wanted.records = bytes(wanted.records)
                topic_partitions[topic.name, wanted.index] = turn
        # All queues at once, in one turn of the loop: taken one by one, two requests for the same
        # two partitions could each wait for the other.
        before = {
            self._last[topic_partition]
            for topic_partition in topic_partitions
            if topic_partition in self._last
        }
        self._last.update(topic_partitions)
        checking = BatchValidation(
            self, call, {topic_partition: _kept(one) for topic_partition, one in ready.items()}
        )
        return self._serve(call, checking, turn, before)

    async def _serve(
        self,
        call: Call,
        checking: BatchValidation,
        turn: asyncio.Future[None],
        before: set[asyncio.Future[None]],
    ) -> Answer:
        try:
            for topic in call.request.topic_data:
                for wanted in topic.partition_data:
                    await checking.checked(topic.name, wanted)
            if before:
                await asyncio.wait(before)
            answer = await self._append(call, checking.checked)
        # However it ends: whoever is behind waits for this future alone, and would wait for ever (a
        # partition once stopped without a line in the log).
        finally:
            turn.set_result(None)
            for topic_partition in [
                topic_partition for topic_partition, last in self._last.items() if last is turn
            ]:
                del self._last[topic_partition]
        return await _final(answer, self._loop)

    async def outcome(
        self, records: Buffer | None, version: int, rules: ProduceRules
    ) -> Prepared | Refused | None:
        """What comes of checking ``records``, wherever that is done."""
        now_ms = self._now_ms()

        def here(work: Work) -> Prepared | None:
            if is_large_to_append(records):
                raise TooMuchWork
            return prepare(records, produce_version=version, rules=rules, now_ms=now_ms, work=work)

        def elsewhere() -> Awaitable[Prepared | None]:
            assert records is not None
            return self._conversions.prepare(
                records, produce_version=version, rules=rules, now_ms=now_ms
            )

        try:
            return await self._conversions.inline.run(here, elsewhere)
        except Refused as refusal:
            return refusal

    def rules_of(self, topic: str, index: int) -> ProduceRules | None:
        """As they are now."""
        return self._rules_of(topic, index)


class BatchValidation:
    """The batches of one request, each checked by the rules of the moment."""

    def __init__(
        self, large: LargeProduce, call: Call, ready: dict[TopicPartition, ValidatedBatch]
    ) -> None:
        self._large = large
        self._version = call.version
        self._ready = ready

    async def checked(self, topic: str, wanted: messages.Partition) -> ValidatedBatch | None:
        """Waits only while the batch was not checked, or by other rules; so it may be appended
        right after this. None where nothing can be appended.
        """
        topic_partition = topic, wanted.index
        # The settings may change while a batch is checked beside the loop: appended by former rules
        # it could be larger than the topic allows by now.
        while (rules := self._large.rules_of(*topic_partition)) is not None:
            known = self._ready.get(topic_partition)
            if known is not None and (known.is_final or known.rules == rules):
                return known
            outcome = await self._large.outcome(wanted.records, self._version, rules)
            self._ready[topic_partition] = ValidatedBatch(rules, outcome)
        return None


def _kept(checked: ValidatedBatch) -> ValidatedBatch:
    """The same, in memory of its own."""
    # The connection receives its next request into the memory that this batch was checked in.
    outcome = checked.outcome
    if isinstance(outcome, Prepared):
        outcome = outcome._replace(batch=bytearray(outcome.batch))
    return checked._replace(outcome=outcome, is_final=True)


async def _final(answer: Answer, loop: asyncio.AbstractEventLoop) -> Answer:
    """An answer that is still to come, awaited.

    By now the queues are free: who is behind waits neither for replicas nor for what another
    node says of a transaction, only for the appends that were made.
    """
    if is_coroutine(answer):
        return await answer
    if not isinstance(answer, PendingResponse):
        return answer
    if not answer.is_resolved:
        completed = loop.create_future()
        answer.add_done_callback(lambda _: completed.set_result(None))
        await completed
    return answer.answer
