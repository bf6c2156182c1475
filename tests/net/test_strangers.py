"""Peers without proof have little, and others their places, docs/spec/security.md §7 (S75)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.handlers.call import Call
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import TINY_BYTES, Limits, MemoryPool
from barnabas.broker.net.listener import Listener
from barnabas.broker.net.strangers import STRANGERS_BYTES_MAX
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import list_groups
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient, until
from tests.net.test_rights import SECRET, authenticated

LIST = (list_groups.ListGroupsRequest(), 2)
POOL_BYTES = 64 << 10
TOKEN_BYTES_MAX = 512 << 10
"""What sasl.server.max.receive.size is by default."""


def listed(call: Call) -> list_groups.ListGroupsResponse:
    return list_groups.ListGroupsResponse(throttle_time_ms=7)


@dataclass
class Asking:
    """A listener of clients that asks for a proof, in a node that lets six in."""

    listener: Listener
    limits: Limits
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self) -> RawClient:
        before = self.limits.connection_quotas.total
        client = await RawClient.open(self.listener.port)
        self.clients.append(client)
        await until(lambda: self.limits.connection_quotas.total > before or self._is_full)
        return client

    @property
    def _is_full(self) -> bool:
        return len(self.limits.strangers) == self.limits.connection_quotas.strangers_max


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    async with asyncio.TaskGroup() as tasks:
        dispatcher, limits = Dispatcher(tasks), Limits(NetworkSettings(max_connections=6))
        dispatcher.register(sasl_handlers.handlers())
        dispatcher.register({ApiKey.LIST_GROUPS: listed})
        node = Asking(Listener("CLIENT", dispatcher, limits, sasl=terms(SECRET)), limits)
        await node.listener.bind("127.0.0.1", 0)
        node.listener.serve()
        yield node
        for client in node.clients:
            await client.close()
        await node.listener.close()


async def test_s75_strangers_have_half_of_all_places_and_the_oldest_goes_first(
    asking: Asking,
) -> None:
    strangers = [await asking.connect() for _ in range(4)]
    assert await strangers[0].is_closed()
    for stranger in strangers[1:]:
        assert await authenticated(stranger, "barnabas", "s3cret") == 0
    others = [await asking.connect() for _ in range(3)]
    assert len(asking.limits.strangers) == 3
    for client in (*strangers[1:], *others[:0]):
        assert (await client.ask(*LIST)).throttle_time_ms == 7


async def test_s75_who_leaves_without_a_proof_gives_its_place_back(asking: Asking) -> None:
    for _ in range(5):
        client = await asking.connect()
        await client.close()
        await until(lambda: not asking.limits.strangers)
    assert asking.limits.connection_quotas.total == 0


async def test_s75_frames_of_strangers_are_held_apart_from_those_of_others(
    asking: Asking,
) -> None:
    client = await asking.connect()
    half = struct.pack(">i", TOKEN_BYTES_MAX) + bytes(TOKEN_BYTES_MAX // 2)
    client.writer.write(half)
    pool = asking.limits.stranger_requests[False]
    await until(lambda: pool.used >= TOKEN_BYTES_MAX // 2)
    assert asking.limits.requests.used == 0
    assert pool.bytes_max == STRANGERS_BYTES_MAX
    await client.close()
    await until(lambda: pool.used == 0)


async def test_s75_half_tokens_of_many_strangers_take_no_more_than_their_pool_and_a_little_each(
    asking: Asking,
) -> None:
    """What a read brings counts: 256 KiB of each of five thousand would be a gigabyte."""
    asking.limits.stranger_requests = tuple(MemoryPool(POOL_BYTES) for _ in range(2))
    asking.limits.connection_quotas.reconfigure(NetworkSettings(), {})
    clients = [await asking.connect() for _ in range(40)]
    for client in clients:
        client.writer.write(struct.pack(">i", TOKEN_BYTES_MAX) + bytes(50_000))
    pool = asking.limits.stranger_requests[False]
    await until(lambda: pool.is_spent)
    for _ in range(200):
        await asyncio.sleep(0)
    connections = asking.listener.connections
    assert sum(one._framing.held for one in connections) <= pool.bytes_max + 40 * 2 * TINY_BYTES
    for client in clients:
        await client.close()
    await until(lambda: pool.used == 0)


async def test_s75_bytes_behind_a_proof_are_those_of_a_known_peer(asking: Asking) -> None:
    client = await asking.connect()
    assert await authenticated(client, "barnabas", "s3cret") == 0
    client.writer.write(struct.pack(">i", 1 << 20) + bytes(100_000))
    await until(lambda: asking.limits.requests.used >= 100_000)
    assert asking.limits.stranger_requests[False].used == 0
    await client.close()
    await until(lambda: asking.limits.requests.used == 0)
