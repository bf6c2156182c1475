"""No producer id is given out twice, whatever becomes of answers, sessions and nodes."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.coordination.producer_id_manager import BLOCK_SIZE, ProducerIdManager
from barnabas.broker.coordination.producer_id_pool import ProducerIdPool
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_loop import SimulatedLoop
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

NODES = 3
CLIENTS = 8
ASKED = 600
"""By each client, so that every node needs several blocks."""


class Nodes:
    """Hand out ids; accidents happen to them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.given: list[int] = []
        self.ensemble = SimEnsemble(loop, latency=lambda: loop.random.uniform(0.001, 0.02))
        self._random = loop.random
        self._loop = loop
        self._fetching = [loop.create_task(asyncio.sleep(0)) for _ in range(NODES)]
        self._nodes = [self._started(number) for number in range(NODES)]

    def _started(self, number: int) -> tuple[SimZooKeeper, ProducerIdPool]:
        session = self.ensemble.connect()
        pool = ProducerIdPool(ProducerIdManager(session, number).take, self._loop)
        self._fetching[number].cancel()
        self._fetching[number] = self._loop.create_task(pool.run())
        return session, pool

    async def ask(self) -> None:
        for _ in range(ASKED):
            answer: asyncio.Future[tuple[int, ErrorCode]] = self._loop.create_future()
            self._random.choice(self._nodes)[1].next_id(
                lambda *given, answer=answer: answer.set_result(given)
            )
            # A node that was killed answers nobody: its timers go on here, as its clients' would.
            producer_id, code = await answer
            if code is ErrorCode.NONE:
                self.given.append(producer_id)
            else:
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        for fetching in self._fetching:
            fetching.cancel()
        await asyncio.gather(*self._fetching, return_exceptions=True)

    async def harm(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0, 0.1))
            number = self._random.randrange(NODES)
            session = self._nodes[number][0]
            match self._random.randrange(4):
                case 0:
                    session.lose_next_answer()
                case 1:
                    session.suspend()
                    await asyncio.sleep(self._random.uniform(0, 0.1))
                    session.resume()
                case 2:
                    session.expire()
                case _:  # killed and started again
                    self._nodes[number] = self._started(number)


@pytest.mark.parametrize("seed", range(10))
def test_lost_answers_and_sessions_never_give_an_id_twice(seed: int) -> None:
    loop = SimulatedLoop(seed)
    nodes = Nodes(loop)

    async def run() -> None:
        await nodes.ensemble.connect().create(znodes.PRODUCER_ID_BLOCK, b"", parents=True)
        harming = asyncio.create_task(nodes.harm())
        await asyncio.gather(*(nodes.ask() for _ in range(CLIENTS)))
        harming.cancel()
        await asyncio.gather(harming, return_exceptions=True)
        await nodes.stop()

    loop.run_until_complete(run())
    loop.close()
    assert len(set(nodes.given)) == len(nodes.given) > BLOCK_SIZE
