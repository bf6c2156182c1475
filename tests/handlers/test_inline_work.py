"""Batches that cost more than they look leave the loop, and many of them take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from barnabas.broker.handlers import inline_work
from barnabas.broker.handlers.conversion_process import ConversionProcess, is_large_to_append
from barnabas.broker.handlers.inline_work import BATCH_STEPS, TURN_STEPS, InlineWork, TurnIsSpent
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.work_limit import TooMuchWork, Work
from tests.handlers import test_fetch
from tests.handlers.coordinators import judging
from tests.handlers.peer import answered, call
from tests.handlers.test_conversion_process import appended_at, fetching, pids, sent
from tests.handlers.test_produce import request, results
from tests.harness.hostile_batches import HOSTILE, many_headers, many_members
from tests.replication.logs import NOW_MS, ManualLogManager, a_batch, lead, turns

__all__ = ["fetching"]

T = TypeVar("T")


class Ledger(InlineWork):
    """Notes the steps of each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = [0]
        self._is_counting = False

    def _counted(self, do: Callable[[Work], T]) -> T:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        try:
            return super()._counted(do)
        finally:
            self.turns[-1] += BATCH_STEPS - max(0, self._work.left)

    def _next_turn(self) -> None:
        self._is_counting = False
        self.turns.append(0)


@pytest.fixture
async def conversions() -> AsyncIterator[ConversionProcess]:
    made = ConversionProcess()
    made.inline = Ledger()
    yield made
    made.close()


@pytest.fixture
async def producing(replicas: ReplicaManager, conversions: ConversionProcess) -> ProduceHandler:
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
        conversions=conversions,
    )


def worst_turn(conversions: ConversionProcess) -> int:
    assert isinstance(conversions.inline, Ledger)
    return max(conversions.inline.turns)


def gzipped(count: int) -> bytes:
    """An honest batch, ``count`` thousand steps or so."""
    value = bytes(range(256)) * (count * 500)
    return bytes(batch.build_batch([(b"", value)], timestamp_ms=NOW_MS, codec=Codec.GZIP))


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_batch_is_checked_in_the_process_and_others_are_served(
    producing: ProduceHandler, replicas: ReplicaManager, conversions: ConversionProcess, name: str
) -> None:
    lead(replicas, "t")
    lead(replicas, "u")
    coming = asyncio.ensure_future(producing.produce(sent("t", HOSTILE[name](), 9)))
    await turns()
    assert pids(conversions)
    assert not coming.done()
    assert appended_at(answered(producing.produce(sent("u", a_batch(1), 9))), 9) == 0
    assert appended_at(await coming, 9) == 0
    assert worst_turn(conversions) <= 2 * BATCH_STEPS


async def test_a_request_of_many_such_batches_takes_many_turns(
    producing: ProduceHandler, replicas: ReplicaManager, conversions: ConversionProcess
) -> None:
    topics = [f"t{number}" for number in range(12)]
    for topic in topics:
        lead(replicas, topic)
    costly = gzipped(15)
    asked = call(request(*((topic, costly) for topic in topics)), 9)
    found = results(await producing.produce(asked))
    assert [result.error_code for result in found] == [0] * len(topics)
    assert not pids(conversions)
    assert worst_turn(conversions) <= TURN_STEPS + 2 * BATCH_STEPS


async def test_many_requests_in_one_turn_of_the_loop_take_many_turns(
    producing: ProduceHandler, replicas: ReplicaManager, conversions: ConversionProcess
) -> None:
    lead(replicas, "t")
    costly = gzipped(15)
    answers = [producing.produce(sent("t", costly, 9)) for _ in range(12)]
    tasks = [asyncio.ensure_future(one) for one in answers if asyncio.iscoroutine(one)]
    assert len(tasks) == len(answers) - 2
    await asyncio.gather(*tasks)
    assert worst_turn(conversions) <= TURN_STEPS + 2 * BATCH_STEPS
    log = replicas.led("t", 0).log
    assert log.end_offset == len(answers)


async def test_batches_checked_before_one_that_takes_too_much_are_appended_as_they_were(
    producing: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    """They were changed in the connection's memory, which is used again meanwhile."""
    shelf.settings = {"message.timestamp.type": "LogAppendTime"}
    lead(replicas, "t")
    lead(replicas, "u")
    memory = bytearray(a_batch(3)), bytearray(many_members())
    asked = call(request(("t", b""), ("u", b"")), 9)
    for topic, data in zip(asked.request.topic_data, memory, strict=True):
        topic.partition_data[0].records = memoryview(data)
    coming = producing.produce(asked)
    for data in memory:
        data[:] = bytes(len(data))
    found = results(await coming)
    assert [(one.error_code, one.log_append_time_ms) for one in found] == [(0, NOW_MS)] * 2
    assert replicas.led("t", 0).log.end_offset == 3
    assert replicas.led("u", 0).log.end_offset == 1


async def test_a_hostile_batch_is_converted_for_an_old_client_in_the_process(
    fetching: Any, replicas: ReplicaManager, conversions: ConversionProcess
) -> None:
    lead(replicas, "t")
    for _ in range(2):
        stored = bytearray(many_members())
        replicas.led("t", 0).append(stored, acks=1, is_client=True)
    asked = test_fetch.request(test_fetch.wanted("t", 0, bytes_max=8 << 20), max_bytes=8 << 20)
    [result] = test_fetch.results(await fetching.fetch(call(asked, 2)))
    assert result.error_code == 0
    assert next(iter(batch.records(bytes(result.records or b"")))).value == b"value"
    assert pids(conversions)
    assert worst_turn(conversions) <= 2 * BATCH_STEPS


async def test_what_cannot_be_done_in_this_turn_is_done_in_a_later_one_in_order() -> None:
    inline, done = InlineWork(), []

    def costly(number: int) -> Callable[[Work], None]:
        def do(work: Work) -> None:
            work.take(BATCH_STEPS)
            done.append(number)

        return do

    async def elsewhere() -> None:
        raise AssertionError

    inline.attempt(costly(0))
    with pytest.raises(TurnIsSpent):
        inline.attempt(costly(-1))
    await asyncio.gather(*(inline.run(costly(n), elsewhere) for n in range(1, 9)))
    assert done == list(range(9))


async def test_little_work_costs_no_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    inline = InlineWork()
    monkeypatch.setattr(inline, "_renew", lambda: pytest.fail("called"))
    for _ in range(10):
        inline.attempt(lambda work: work.take(inline_work.NOTED_STEPS // 20))
    await turns()


async def test_a_failing_attempt_is_counted() -> None:
    inline = InlineWork()

    def fails(work: Work) -> None:
        work.take(2 * BATCH_STEPS)

    with pytest.raises(TooMuchWork) as first:
        inline.attempt(fails)
    assert not isinstance(first.value, TurnIsSpent)
    with pytest.raises(TurnIsSpent):
        inline.attempt(fails)


def test_what_a_gzip_batch_says_it_holds_sends_it_to_the_process_at_once() -> None:
    assert is_large_to_append(gzipped(30))
    assert not is_large_to_append(gzipped(10))


async def test_the_rules_of_a_topic_may_change_while_a_batch_is_checked(
    producing: ProduceHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    lead(replicas, "t")
    coming = asyncio.ensure_future(producing.produce(sent("t", many_headers(), 9)))
    await turns()
    shelf.settings = {"message.timestamp.type": "LogAppendTime"}
    shelf.reconfigure("t")
    [result] = results(await coming)
    assert (result.error_code, result.log_append_time_ms) == (0, NOW_MS)


def test_hostile_batches_hold_one_record() -> None:
    assert all(batch.record_count(make()) == 1 for make in HOSTILE.values())
