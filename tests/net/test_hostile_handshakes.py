"""Handshakes that no library would begin, and who has to go when there are too many (S75).

Source: docs/spec/security.md §1 (S8, S14, S18) and §7.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from barnabas.broker.net.connection_quotas import ConnectionQuotas
from barnabas.broker.net.descriptors import REASON as NO_DESCRIPTORS
from barnabas.broker.net.descriptors import Descriptors
from barnabas.broker.net.strangers import REASON as OTHERS_WAIT
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.broker.storage.segment.open_files import OpenFiles
from barnabas.protocol.frame import request_frame
from tests.harness.client_hellos import (
    ALERT,
    GOOD_SUITES,
    HANDSHAKE,
    LONG_HEARTBEAT,
    REFUSED_HELLOS,
    hello,
    record,
)
from tests.harness.renegotiation import Renegotiator
from tests.harness.sasl_terms import terms
from tests.net.client import until
from tests.net.conftest import ListeningNode, Start
from tests.net.test_tls_listener import LIST, World, ended, nobody_is_left

LIST_GROUPS: Final = request_frame(16, 2, 9, "raw", b"")
WAIT_S: Final = 60.0
HALF: Final = record(HANDSHAKE, hello())[:20]


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def bare(start: Start) -> Iterator[Callable[[int], socket.socket]]:
    """Makes sockets that speak no TLS, and closes them."""
    opened: list[socket.socket] = []

    def connect(port: int) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", port))
        opened.append(link)
        link.setblocking(False)
        return link

    yield connect
    for link in opened:
        link.close()


@pytest.mark.parametrize("name", REFUSED_HELLOS)
async def test_a_handshake_that_must_not_be_is_answered_by_an_alert_at_most(
    start: Start, world: World, bare: Any, name: str
) -> None:
    """Old versions, suites that encrypt nothing, lengths that lie: no ServerHello."""
    node = await start(tls=world.tls())
    link = bare(node.listener.port)
    link.send(REFUSED_HELLOS[name])
    link.shutdown(socket.SHUT_WR)
    answer = await ended(link)
    assert answer == b"" or answer[0] == ALERT
    await until(lambda: nobody_is_left(node))
    assert node.listener.tls_handshakes == {"failed": 1}


async def test_the_same_hello_with_a_good_suite_is_answered(
    start: Start, world: World, bare: Any
) -> None:
    """Or the hellos above are refused for another reason than the one that they are made for."""
    node = await start(tls=world.tls())
    link = bare(node.listener.port)
    link.send(record(HANDSHAKE, hello(suites=GOOD_SUITES)))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(WAIT_S):
        assert (await loop.sock_recv(link, 1))[0] == HANDSHAKE


async def test_nobody_begins_a_second_handshake_inside_of_a_session(
    start: Start, world: World, tmp_path: Path
) -> None:
    """S8. The hello is not answered by a handshake, and what is asked behind it is served."""
    node = await start(tls=world.tls())
    trust = world.authority.trust_store(tmp_path / "trust.pem")

    def asked() -> str:
        client = Renegotiator(("127.0.0.1", node.listener.port), trust, tmp_path, WAIT_S)
        try:
            client.ask(LIST_GROUPS)
            assert client.receive()[4:8] == (9).to_bytes(4)
            client.begin_again()
            return client.after_beginning_again()
        finally:
            client.close()

    seen = await asyncio.to_thread(asked)
    assert seen in ("warning", "NO_RENEGOTIATION")
    await until(lambda: nobody_is_left(node))
    assert node.toys.seen == ["list"]
    assert node.listener.tls_handshakes == {"done": 1}


async def test_a_heartbeat_gives_no_memory_away(start: Start, world: World, bare: Any) -> None:
    """CVE-2014-0160."""
    node = await start(tls=world.tls())
    link = bare(node.listener.port)
    link.send(record(HANDSHAKE, hello()) + LONG_HEARTBEAT)
    link.shutdown(socket.SHUT_WR)
    assert len(await ended(link)) < 4000
    await until(lambda: nobody_is_left(node))


async def crowd(
    node: ListeningNode, bare: Callable[[int], socket.socket], count: int
) -> list[socket.socket]:
    """So many that begin handshakes and end none, one after the other."""
    links = []
    for _ in range(count):
        admitted = node.limits.rejection_log.connections.total() + len(node.limits.strangers)
        links.append(bare(node.listener.port))
        links[-1].send(HALF)
        await until(
            lambda before=admitted: (  # type: ignore[misc]
                node.limits.rejection_log.connections.total() + len(node.limits.strangers) > before
            )
        )
    return links


async def test_s75_unfinished_handshakes_have_half_of_all_places_and_the_oldest_goes_first(
    start: Start, world: World, bare: Any
) -> None:
    node = await start(tls=world.tls(), settings=NetworkSettings(max_connections=6))
    links = await crowd(node, bare, 5)
    for link in links[:2]:
        assert await ended(link) == b""
    assert node.limits.rejection_log.connections == {OTHERS_WAIT: 2}
    others = [await node.connect(world.client()) for _ in range(3)]
    for client in others:
        assert (await client.ask(*LIST)).throttle_time_ms == 7
    # The first of them made a third one go: a newcomer is a stranger, too, until it has proved.
    assert node.limits.rejection_log.connections == {OTHERS_WAIT: 3}
    assert node.limits.connection_quotas.total == 5
    for link in links:
        link.close()
    for client in others:
        await client.close()
    await until(lambda: nobody_is_left(node))
    assert not node.limits.strangers


async def test_s75_a_handshake_under_way_is_broken_off_for_others(
    start: Start, world: World, bare: Any
) -> None:
    """Also behind its turn, when the socket is the loop's already."""
    node = await start(tls=world.tls(), settings=NetworkSettings(max_connections=2))
    first = bare(node.listener.port)
    first.send(record(HANDSHAKE, hello()))
    loop = asyncio.get_running_loop()
    assert await loop.sock_recv(first, 1)  # it was answered
    second = bare(node.listener.port)
    await ended(first)
    second.close()
    await until(lambda: nobody_is_left(node))
    assert node.limits.rejection_log.connections[OTHERS_WAIT] == 1


async def test_s75_after_the_handshake_a_login_is_still_a_strangers(
    start: Start, world: World, bare: Any
) -> None:
    """One place in all, though two things stand for the peer in turn."""
    node = await start(
        tls=world.tls(), sasl=terms({"u": "p"}), settings=NetworkSettings(max_connections=4)
    )
    clients = [await node.connect(world.client()) for _ in range(2)]
    await until(lambda: len(node.listener.connections) == 2)
    assert len(node.limits.strangers) == 2
    assert not node.limits.rejection_log.connections
    await node.connect(world.client())
    assert await clients[0].is_closed()
    await until(lambda: len(node.limits.strangers) == 2)


async def test_s75_nodes_do_not_share_their_places_with_strangers(
    start: Start, world: World, bare: Any
) -> None:
    node = await start(
        tls=world.tls(), is_internal=True, settings=NetworkSettings(max_connections=2)
    )
    links = [bare(node.listener.port) for _ in range(4)]
    await until(lambda: node.limits.connection_quotas._by_listener["TEST"] == 4)
    assert not node.limits.strangers
    for link in links:
        link.close()
    await until(lambda: nobody_is_left(node))


class Segment:
    """Has its file open."""

    def close_if_idle(self) -> bool:
        return False


def test_s75_connections_leave_descriptors_for_files_that_are_not_open_yet() -> None:
    segments = OpenFiles(500)
    descriptors = Descriptors(1000, segments)
    assert descriptors.leave_room(-1), "there is none in a simulation"
    assert [descriptors.leave_room(number) for number in (437, 438)] == [True, False]
    for _ in range(200):
        segments.opened(Segment())
    assert [descriptors.leave_room(number) for number in (637, 638)] == [True, False]


def test_s75_where_there_are_many_descriptors_not_all_of_the_share_of_files_is_kept() -> None:
    segments = OpenFiles(10_000)
    descriptors = Descriptors(20_000, segments)
    assert [descriptors.leave_room(number) for number in (18_237, 18_238)] == [True, False]
    for _ in range(3_000):
        segments.opened(Segment())
    assert [descriptors.leave_room(number) for number in (15_749, 15_750)] == [True, False]


@pytest.mark.parametrize("is_tls", [False, True])
async def test_s75_who_would_take_the_last_descriptors_is_turned_away_but_for_nodes(
    start: Start, world: World, bare: Any, *, is_tls: bool
) -> None:
    tls = world.tls() if is_tls else None
    node = await start(tls=tls)
    quotas = node.limits.connection_quotas
    quotas.descriptors = Descriptors(2, OpenFiles(1))
    assert await ended(bare(node.listener.port)) == b""
    assert node.limits.rejection_log.connections == {NO_DESCRIPTORS: 1}
    assert nobody_is_left(node)
    assert quotas.admit("127.0.0.1", "INTERNAL", is_internal=True, now=0.0, descriptor=9) is None
    quotas.descriptors = Descriptors()
    client = await node.connect(world.client() if is_tls else None)
    await client.ask(*LIST)


def test_s75_descriptors_without_a_bound_are_never_too_few() -> None:
    quotas = ConnectionQuotas(NetworkSettings())
    quotas.descriptors = Descriptors(-1)
    assert quotas.admit("h", "L", is_internal=False, now=0.0, descriptor=10**6) is None


async def test_s17_tls_on_another_loop_than_uvloop_is_warned_of(
    start: Start, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await start()
        await start(tls=world.tls())
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    warned = caplog.text.count("an idle connection costs 280 KiB there, 30 on uvloop")
    assert warned == (0 if is_uvloop else 1)
