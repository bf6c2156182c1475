"""Who is let in, and when: bounds of node, listener, address and time (KIP-402, KIP-612)."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.net.connection_quotas import THROTTLE_S_MAX, ConnectionQuotas
from barnabas.broker.quota.ip_connection_rates import IpConnectionRates
from barnabas.broker.quota.rate import Windows
from barnabas.broker.settings.node_config import NetworkSettings, load
from barnabas.protocol.messages import list_groups
from barnabas.protocol.settings import ConfigError
from tests.net.conftest import Start

LEAST = {
    "zookeeper.connect": "z:1",
    "log.dirs": "/d",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,INSIDE:PLAINTEXT",
}
LIST = (list_groups.ListGroupsRequest(), 2)


def connection_quotas(**settings: str) -> ConnectionQuotas:
    """Settings with ``_`` for dots; ``__`` begins the name of a listener."""
    config = load(LEAST | {name.replace("_", "."): value for name, value in settings.items()})
    return ConnectionQuotas(config.network, config.listener_quotas)


def enters(
    of: ConnectionQuotas,
    host: str,
    listener: str = "PLAINTEXT",
    now: float = 100.0,
    inner: bool = False,
) -> str | None:
    admit = of.admit(host, listener, is_internal=inner, now=now)
    if admit is None:
        of.throttle_s(listener, is_internal=inner, now=now)
    return admit


def test_connections_are_counted_by_address_and_in_all() -> None:
    bounded = connection_quotas(max_connections="3", max_connections_per_ip="2")
    assert [enters(bounded, host) is None for host in "aaabb"] == [True, True, False, True, False]
    bounded.release("a", "PLAINTEXT", is_internal=False)
    assert enters(bounded, "b") is None
    assert bounded.total == 3


def test_an_address_may_have_a_bound_of_its_own() -> None:
    bounded = connection_quotas(
        max_connections_per_ip="0", max_connections_per_ip_overrides="10.0.0.1:1,[::1]:2"
    )
    assert [enters(bounded, "10.0.0.1") is None for _ in range(2)] == [True, False]
    assert [enters(bounded, "::1") is None for _ in range(3)] == [True, True, False]
    assert enters(bounded, "10.0.0.2") is not None


async def test_a_host_name_stands_for_its_addresses() -> None:
    bounded = connection_quotas(
        max_connections_per_ip_overrides="localhost:1,no.such.host.invalid:1"
    )
    await bounded.resolve()
    assert [enters(bounded, "127.0.0.1") is None for _ in range(2)] == [True, False]


@pytest.mark.parametrize("name", ["a..b", ".a", "a" * 64])
def test_a_bound_of_what_can_be_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no host name"):
        connection_quotas(max_connections_per_ip_overrides=f"{name}:1")


async def test_what_can_be_no_host_name_has_no_addresses_and_ends_nothing() -> None:
    bounded = connection_quotas(max_connections_per_ip_overrides="localhost:1")
    bounded._address_quotas = {"a..b": 1, **bounded._address_quotas}
    await bounded.resolve()
    assert [enters(bounded, "127.0.0.1") is None for _ in range(2)] == [True, False]


def test_a_listener_may_have_bounds_of_its_own() -> None:
    bounded = connection_quotas(listener_name_inside_max_connections="1")
    assert [enters(bounded, "a", "INSIDE") is None for _ in range(2)] == [True, False]
    assert enters(bounded, "a") is None


def test_clients_cannot_keep_nodes_from_each_other() -> None:
    bounded = connection_quotas(max_connections="1", max_connection_creation_rate="1")
    assert enters(bounded, "a") is None
    assert enters(bounded, "b") == "too many connections"
    assert enters(bounded, "n", "INTERNAL", inner=True) is None
    assert bounded.throttle_s("INTERNAL", is_internal=True, now=100.0) == 0


def test_connections_beyond_the_rate_wait_for_their_turn_after_a_burst() -> None:
    bounded = connection_quotas(max_connection_creation_rate="4")
    waits = [bounded.throttle_s("PLAINTEXT", is_internal=False, now=100.0) for _ in range(7)]
    assert waits == [0, 0, 0, 0, 0.25, 0.5, 0.75]
    assert bounded.throttle_s("PLAINTEXT", is_internal=False, now=101.0) == 0


def test_the_slower_of_two_rates_counts() -> None:
    bounded = connection_quotas(
        max_connection_creation_rate="100", listener_name_a_max_connection_creation_rate="1"
    )
    assert [bounded.throttle_s("A", is_internal=False, now=100.0) for _ in range(3)] == [0, 1, 2]
    assert bounded.throttle_s("B", is_internal=False, now=100.0) == 0


def test_a_connection_that_would_wait_for_too_long_is_turned_away() -> None:
    bounded = connection_quotas(max_connection_creation_rate="1")
    let_in = sum(enters(bounded, "a") is None for _ in range(100))
    assert let_in == THROTTLE_S_MAX + 1
    assert enters(bounded, "a") == "too many connections a second"


def test_other_bounds_hold_from_the_next_connection_on() -> None:
    bounded = connection_quotas()
    assert [enters(bounded, "a") for _ in range(3)] == [None] * 3
    bounded.reconfigure(NetworkSettings(max_connections=3), {})
    assert enters(bounded, "a") == "too many connections"
    bounded.reconfigure(NetworkSettings(), {})
    assert enters(bounded, "a") is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max.connections.per.ip.overrides": "a"}, "must read host:count"),
        ({"max.connections.per.ip.overrides": "a:b"}, "must read host:count"),
        ({"max.connections.per.ip": "0"}, "lets nobody in"),
        ({"max.connections": "0"}, "must be at least 1"),
        ({"listener.name.inside.max.connections": "0"}, "listener.name.inside.max.connections=0"),
        ({"max.connection.creation.rate": "0"}, "must be at least 1"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_as_kafka_refuses_them(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(LEAST | settings)


async def test_a_connection_that_waits_for_its_turn_is_served_in_the_end(start: Start) -> None:
    node = await start(settings=NetworkSettings(max_connection_creation_rate=10))
    clients = [await node.connect() for _ in range(12)]
    answers = await asyncio.gather(*(client.ask(*LIST) for client in clients))
    assert len(answers) == 12


def test_s64_a_bound_that_is_lowered_tells_how_many_are_too_many() -> None:
    bounded = connection_quotas(max_connections="9", listener_name_inside_max_connections="5")
    for number in range(4):
        assert enters(bounded, str(number), "INSIDE") is None
        assert enters(bounded, str(number), "INTERNAL", inner=True) is None
    assert (bounded.excess("INSIDE"), bounded.excess_in_all) == (0, 0)
    config = load(LEAST | {"max.connections": "3", "listener.name.inside.max.connections": "2"})
    bounded.reconfigure(config.network, config.listener_quotas)
    assert (bounded.excess("INSIDE"), bounded.excess_in_all) == (2, 1)
    assert bounded.excess("INTERNAL") == 0


def test_s64_nodes_are_outside_the_rates_of_addresses() -> None:
    bounded = connection_quotas()
    assert bounded.closes_after_s("a", is_internal=False, now=100.0) == 0
    bounded.address_rates = rates = IpConnectionRates(Windows(11, 1.0))
    rates.replace({"10.0.0.1": 1e-9})
    assert bounded.closes_after_s("10.0.0.1", is_internal=True, now=100.0) == 0
    assert bounded.closes_after_s("10.0.0.1", is_internal=False, now=100.0) == 1
