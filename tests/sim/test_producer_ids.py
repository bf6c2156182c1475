"""No producer id is given out twice, whatever becomes of answers, sessions and nodes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.broker.coordination.producer_id_manager import BLOCK_SIZE, ProducerIdManager
from barnabas.broker.handlers.call import Call
from barnabas.broker.handlers.init_producer_id import InitProducerIdHandler
from barnabas.protocol.errors import Refused
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
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
        self._nodes = [self._started(number) for number in range(NODES)]

    def _started(self, number: int) -> tuple[SimZooKeeper, InitProducerIdHandler]:
        session = self.ensemble.connect()
        return session, InitProducerIdHandler(ProducerIdManager(session, number).take)

    async def ask(self) -> None:
        call = cast(Call, SimpleNamespace(request=InitProducerIdRequest(transactional_id=None)))
        for _ in range(ASKED):
            handler = self._random.choice(self._nodes)[1]
            try:
                self.given.append((await handler.init_producer_id(call)).producer_id)
            except Refused:
                await asyncio.sleep(0.01)

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

    loop.run_until_complete(run())
    loop.close()
    assert len(set(nodes.given)) == len(nodes.given) > BLOCK_SIZE
