"""A listener with toy handlers, on both loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.security.ssl_contexts import ListenerTls
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import heartbeat, list_groups
from tests.net.client import RawClient


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@dataclass
class Toys:
    """Handlers whose answers the test gives: heartbeats wait, lists of groups do not."""

    pending: dict[str, PendingResponse] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def heartbeat(self, call: Call) -> PendingResponse:
        group = call.request.group_id
        self.seen.append(group)
        pending = self.pending[group] = PendingResponse(lambda: self.dropped.append(group))
        return pending

    def list_groups(self, call: Call) -> list_groups.ListGroupsResponse:
        self.seen.append("list")
        return list_groups.ListGroupsResponse(throttle_time_ms=7)

    def resolve(self, group: str, error_code: int = 0) -> None:
        self.pending[group].respond(heartbeat.HeartbeatResponse(error_code=error_code))


@dataclass
class ListeningNode:
    """One listening node of a test."""

    toys: Toys
    dispatcher: Dispatcher
    limits: Limits
    listener: Listener
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self, tls: ssl.SSLContext | None = None) -> RawClient:
        client = await RawClient.open(self.listener.port, tls)
        self.clients.append(client)
        return client


Start = Callable[..., Awaitable[ListeningNode]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts nodes; everything is closed afterwards."""
    nodes: list[ListeningNode] = []
    async with asyncio.TaskGroup() as tasks:

        async def begin(
            *,
            serve: bool = True,
            settings: NetworkSettings | None = None,
            tls: ListenerTls | None = None,
            **of_listener: Any,
        ) -> ListeningNode:
            toys = Toys()
            dispatcher = Dispatcher(tasks)
            dispatcher.register(
                {ApiKey.HEARTBEAT: toys.heartbeat, ApiKey.LIST_GROUPS: toys.list_groups}
            )
            limits = Limits(settings or NetworkSettings())
            listener = Listener("TEST", dispatcher, limits, tls=tls, **of_listener)
            node = ListeningNode(toys, dispatcher, limits, listener)
            await node.listener.bind("127.0.0.1", 0)
            if serve:
                node.listener.serve()
            nodes.append(node)
            return node

        yield begin
        for node in nodes:
            for client in node.clients:
                await client.close()
            await node.listener.close()
