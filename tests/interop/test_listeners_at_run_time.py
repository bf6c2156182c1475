"""Settings of nodes that change while they run: listeners, and what a restart finds (KIP-226)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.messages import incremental_alter_configs as alter_configs
from barnabas.protocol.messages import metadata
from barnabas.protocol.zookeeper.znodes import BrokerRegistration, broker_path
from tests.harness import znodes
from tests.harness.steady_settings import STEADY

NODE: Final = 4
PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,INTERNAL:SASL_PLAINTEXT"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, settings=STEADY) as running:
        yield running


async def dial(port: int) -> Connection:
    return await Connection.open(LOOPBACK, port, client_id="tests", timeout_ms=60_000)


async def change_over(
    connection: Connection, node: int, **settings: str | None
) -> tuple[int, str | None]:
    """Set, or take back (None), settings with ``_`` for dots."""
    request = alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            alter_configs.Resource(
                resource_type=NODE,
                resource_name=str(node),
                configs=[
                    alter_configs.Config(
                        name=name.replace("_", "."),
                        config_operation=0 if value is not None else 1,
                        value=value,
                    )
                    for name, value in settings.items()
                ],
            )
        ],
        validate_only=False,
    )
    (result,) = (await connection.request(request)).responses
    return result.error_code, result.error_message


async def change(port: int, node: int, **settings: str | None) -> tuple[int, str | None]:
    """The same over a connection of its own."""
    async with await dial(port) as connection:
        return await change_over(connection, node, **settings)


async def told(port: int) -> dict[int, tuple[str, int]]:
    """The addresses of all nodes, as the listener on this port tells them."""
    async with await dial(port) as connection:
        answer = await connection.request(metadata.MetadataRequest(topics=[]))
        return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(240):
        while True:
            try:
                if await holds():
                    return
            except (KafkaError, OSError):
                pass  # nothing listens there yet
            await asyncio.sleep(0.02)


def registered(cluster: Cluster, node: int) -> BrokerRegistration:
    data = znodes.data(cluster.zookeeper, broker_path(node))
    assert data is not None
    return BrokerRegistration.from_json(data)


async def is_refused(port: int) -> bool:
    try:
        (await asyncio.open_connection(LOOPBACK, port))[1].close()
    except ConnectionRefusedError:
        return True
    return False


async def test_a_listener_comes_moves_survives_a_restart_and_goes(cluster: Cluster) -> None:
    first, second = (node.port for node in cluster.nodes)
    outside, other_port = free_ports(2)
    epoch = znodes.czxid(cluster.zookeeper, broker_path(1))
    plain = f"PLAINTEXT://{LOOPBACK}:{first}"

    added = f"{plain},OUTSIDE://{LOOPBACK}:{outside}"
    changes = {"listeners": added, "listener_security_protocol_map": PROTOCOLS}
    assert await change(first, 1, **changes) == (0, None)
    await eventually(lambda: knows(outside, {1: (LOOPBACK, outside)}))
    assert registered(cluster, 1).endpoints["OUTSIDE"] == (LOOPBACK, outside)

    moved = f"{plain},OUTSIDE://{LOOPBACK}:{other_port}"
    assert await change(first, 1, listeners=moved) == (0, None)
    await eventually(lambda: knows(other_port, {1: (LOOPBACK, other_port)}))
    await eventually(lambda: is_refused(outside))

    await asyncio.to_thread(cluster.restart, 1)
    await eventually(lambda: knows(other_port, {1: (LOOPBACK, other_port)}))
    epoch_after = znodes.czxid(cluster.zookeeper, broker_path(1))
    assert epoch_after > epoch

    assert await change(first, 1, listeners=None, listener_security_protocol_map=None) == (0, None)
    await eventually(lambda: is_refused(other_port))
    await eventually(lambda: knows(second, {1: (LOOPBACK, first), 2: (LOOPBACK, second)}))
    assert "OUTSIDE" not in registered(cluster, 1).endpoints
    assert znodes.czxid(cluster.zookeeper, broker_path(1)) == epoch_after


async def knows(port: int, nodes: dict[int, tuple[str, int]]) -> bool:
    return await told(port) == nodes


async def test_other_nodes_tell_what_a_node_advertises_from_then_on(cluster: Cluster) -> None:
    first, second = (node.port for node in cluster.nodes)
    name = f"PLAINTEXT://localhost:{first}"
    assert await change(first, 1, advertised_listeners=name) == (0, None)
    await eventually(lambda: knows(second, {1: ("localhost", first), 2: (LOOPBACK, second)}))
    assert await change(first, 1, advertised_listeners=None) == (0, None)
    await eventually(lambda: knows(second, {1: (LOOPBACK, first), 2: (LOOPBACK, second)}))


async def test_the_only_listener_of_clients_may_be_bound_more_widely_on_its_port(
    cluster: Cluster,
) -> None:
    first, second = (node.port for node in cluster.nodes)
    changes = {
        "listeners": f"PLAINTEXT://0.0.0.0:{first}",
        "advertised_listeners": f"PLAINTEXT://localhost:{first}",
    }
    assert await change(first, 1, **changes) == (0, None)
    await eventually(lambda: knows(first, {1: ("localhost", first), 2: (LOOPBACK, second)}))

    async def is_taken_back() -> bool:
        """A connection to the former socket may end with it, which is closed when all is told."""
        return await change(first, 1, listeners=None, advertised_listeners=None) == (0, None)

    await eventually(is_taken_back)
    await eventually(lambda: knows(first, {1: (LOOPBACK, first), 2: (LOOPBACK, second)}))


async def test_what_cannot_be_bound_or_dialled_is_refused_and_changes_nothing(
    cluster: Cluster,
) -> None:
    first, second = (node.port for node in cluster.nodes)
    before = registered(cluster, 1)
    for text, reason in (
        (f"PLAINTEXT://{LOOPBACK}:{second}", "in use"),
        (f"PLAINTEXT://0.0.0.0:{first}", "nobody can dial"),
        (f"SASL_PLAINTEXT://{LOOPBACK}:{first}", "sasl.enabled.mechanisms: must name"),
    ):
        code, message = await change(first, 1, listeners=text)
        assert (code, reason in (message or "")) == (42, True), message
    code, message = await change(first, 1, advertised_listeners=f"PLAINTEXT://{LOOPBACK}:{second}")
    assert (code, "already registered by node 2" in (message or "")) == (42, True), message
    assert registered(cluster, 1) == before


async def test_a_lowered_bound_closes_the_longest_idle_and_holds_from_then_on(
    cluster: Cluster,
) -> None:
    first = cluster.node(1).port
    async with await dial(first) as idle:
        assert await change(first, 1, max_connections="1") == (0, None)

        async def is_closed() -> bool:
            return idle.is_closed

        await eventually(is_closed)
    opened: list[Connection] = []

    async def is_let_in() -> bool:
        opened.append(await dial(first))  # refused until the one that made the change is gone
        return True

    await eventually(is_let_in)
    async with opened[0] as held:
        with pytest.raises(KafkaError):
            await told(first)
        assert await change_over(held, 1, max_connections=None) == (0, None)
    assert await told(first)
