"""Producer ids at hand: docs/spec/transactions.md §3.8."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.coordination.producer_id_pool import LEFT_MIN, WAIT_S, ProducerIdPool
from barnabas.protocol.errors import ErrorCode, Refused
from tests.replication.logs import turns
from tests.storage.simulated import in_simulated_time
from tests.verification.node_links import running

SIZE = 1000


class Blocks:
    """Blocks of the cluster; every second one is another node's."""

    def __init__(self) -> None:
        self.taken = 0
        self.is_away = False
        self.tries = 0

    async def take(self) -> range:
        self.tries += 1
        await asyncio.sleep(0.01)
        if self.is_away:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        start = 2 * SIZE * self.taken
        self.taken += 1
        return range(start, start + SIZE)


class Asked:
    """Who asks for ids, and what they were given."""

    def __init__(self, blocks: Blocks) -> None:
        self.pool = ProducerIdPool(blocks.take, asyncio.get_running_loop())
        self.ids: list[int] = []
        self.codes: list[ErrorCode] = []

    def ask(self, count: int = 1) -> None:
        for _ in range(count):
            self.pool.next_id(self._given)

    def _given(self, producer_id: int, code: ErrorCode) -> None:
        self.ids.append(producer_id)
        self.codes.append(code)


@in_simulated_time
async def test_the_first_block_is_taken_before_anybody_asks() -> None:
    blocks = Blocks()
    asked = Asked(blocks)
    async with running(asked.pool.run):
        await asyncio.sleep(1)
        assert blocks.taken == 1
        asked.ask()
        assert (asked.ids, asked.codes) == ([0], [ErrorCode.NONE])


@in_simulated_time
async def test_the_next_block_is_there_before_the_last_id_is_gone() -> None:
    blocks = Blocks()
    asked = Asked(blocks)
    async with running(asked.pool.run):
        await asyncio.sleep(1)
        asked.ask(SIZE - LEFT_MIN - 1)
        await asyncio.sleep(1)
        assert blocks.taken == 1
        asked.ask()
        await asyncio.sleep(1)
        assert blocks.taken == 2
        asked.ask(LEFT_MIN + 1)
        assert asked.ids == [*range(SIZE), 2 * SIZE]
        await asyncio.sleep(1)
        assert blocks.taken == 2


@in_simulated_time
async def test_every_producer_gets_an_id_of_its_own() -> None:
    blocks = Blocks()
    asked = Asked(blocks)
    asked.ask(3 * SIZE + 5)
    async with running(asked.pool.run):
        await asyncio.sleep(WAIT_S / 2)
    assert len(set(asked.ids)) == 3 * SIZE + 5
    assert set(asked.codes) == {ErrorCode.NONE}


@in_simulated_time
async def test_who_waits_for_a_second_is_told_to_ask_again() -> None:
    blocks = Blocks()
    blocks.is_away = True
    asked = Asked(blocks)
    loop = asyncio.get_running_loop()
    async with running(asked.pool.run):
        await turns()
        began = loop.time()
        asked.ask()
        while not asked.codes:  # noqa: ASYNC110 - on a simulated clock
            await asyncio.sleep(0.001)
        assert loop.time() - began == pytest.approx(WAIT_S, abs=0.01)
        assert (asked.ids, asked.codes) == ([-1], [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
        await asyncio.sleep(60)
        assert blocks.tries < 70
        blocks.is_away = False
        asked.ask()
        await asyncio.sleep(1)
        assert asked.codes[1:] == [ErrorCode.NONE]
