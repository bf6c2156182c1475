"""The kazoo adapter against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from barnabas.client.zookeeper import connect_diagnosis, kazoo_handler
from barnabas.client.zookeeper.interface import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    PayloadTooLarge,
    SessionExpired,
    SessionState,
    Set,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import free_ports
from tests.zookeeper.conftest import OUTLASTS_MS, TICK_MS, Connect, expire


def _patient() -> EmbeddedZooKeeper:
    """A server that grants such sessions."""
    return EmbeddedZooKeeper(tick_ms=TICK_MS)


async def test_the_chroot_is_created_at_connect_and_seen_by_nobody(
    hosts: str, server: EmbeddedZooKeeper, session: ZooKeeper
) -> None:
    path = await session.create("/a/b", b"x", parents=True)
    assert path == "/a/b"
    root = await connect(server.hosts)
    try:
        data, _stat = await root.get("/" + hosts.partition("/")[2] + "/a/b")
    finally:
        await root.close()
    assert data == b"x"


async def test_reads_and_writes_give_versions_zxids_and_owners(session: ZooKeeper) -> None:
    await session.create("/a", b"1")
    first = await session.exists("/a")
    assert first is not None
    assert (first.version, first.ephemeral_owner) == (0, 0)
    second = await session.set("/a", b"2", 0)
    assert second.version == 1
    assert second.czxid == first.czxid < second.mzxid
    assert (await session.get("/a"))[0] == b"2"
    await session.create("/a/e", ephemeral=True)
    stat = await session.exists("/a/e")
    assert stat is not None
    assert stat.ephemeral_owner == session.session_id
    assert await session.children("/a") == ["e"]
    await session.delete("/a/e")
    assert await session.exists("/a/e") is None


async def test_each_refusal_has_its_own_exception(session: ZooKeeper) -> None:
    await session.create("/a/b", parents=True)
    with pytest.raises(NodeExists):
        await session.create("/a/b")
    with pytest.raises(NoNode):
        await session.get("/nowhere")
    with pytest.raises(NoNode):
        await session.create("/no/parent")
    with pytest.raises(BadVersion):
        await session.set("/a", b"", 7)
    with pytest.raises(NotEmpty):
        await session.delete("/a")


async def test_a_multi_applies_all_or_nothing_and_names_the_culprit(session: ZooKeeper) -> None:
    await session.create("/epoch", b"0")
    results = await session.multi(
        Check("/epoch", 0),
        Create("/a", b"x", ephemeral=True),
        Set("/epoch", b"1", 0),
        Create("/s-", sequence=True),
    )
    assert results[0] is None
    assert results[1] == "/a"
    assert results[2].version == 1
    assert results[3].startswith("/s-000000000")
    with pytest.raises(MultiFailed) as failed:
        await session.multi(Set("/a", b"y"), Check("/epoch", 0), Delete("/a"))
    assert failed.value.index == 1
    assert isinstance(failed.value.error, BadVersion)
    assert (await session.get("/a"))[0] == b"x"


async def test_payloads_that_zookeeper_would_drop_the_connection_over_are_refused_here(
    session: ZooKeeper,
) -> None:
    with pytest.raises(PayloadTooLarge):
        await session.create("/big", b"x" * 900_001)
    with pytest.raises(PayloadTooLarge):
        await session.multi(Create("/a", b"x" * 500_000), Create("/b", b"x" * 500_000))
    await session.create("/big", b"x" * 900_000)


async def test_a_watch_fires_once_and_on_the_loop(session: ZooKeeper) -> None:
    loop = asyncio.get_running_loop()
    fired: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    here = threading.get_ident()

    def watch(what: str) -> None:
        fired.put_nowait((what, threading.get_ident()))

    await session.create("/a")
    await session.get("/a", lambda: watch("data"))
    await session.children("/a", lambda: watch("children"))
    await session.exists("/b", lambda: watch("created"))
    await session.set("/a", b"1")
    await session.set("/a", b"2")
    await session.create("/a/x")
    await session.create("/b")
    assert loop.is_running()
    seen = [await fired.get() for _ in range(3)]
    assert sorted(seen) == [("children", here), ("created", here), ("data", here)]
    await session.get("/a")
    assert fired.empty()


async def test_a_watch_is_told_before_any_answer_that_sees_the_change(
    session: ZooKeeper, sessions: Connect
) -> None:
    """ZooKeeper sends them in that order; with a thread of kazoo's for each either came first."""
    other = await sessions()
    await session.create("/a", b"0")
    for number in range(1, 50):
        told = asyncio.Event()
        await session.get("/a", told.set)
        change = asyncio.ensure_future(other.set("/a", b"%d" % number))
        while (await session.get("/a"))[0] != b"%d" % number:
            pass
        assert told.is_set()
        await change


async def test_what_waits_for_kazoo_knows_ready_sockets_from_closed_ones() -> None:
    handler = kazoo_handler.KazooHandler(None)
    here, there = socket.socketpair()
    with here, there:
        assert handler.select([here], [here], [], 0) == ([], [here], [])
        there.send(b"x")
        assert handler.select([here], [], [], None) == ([here], [], [])
        there.close()
        assert handler.select([here], [here], [], 0.01) == ([here], [here], [])
    with pytest.raises(ValueError, match="negative"):
        handler.select([here], [], [], 0)


async def test_any_number_of_requests_may_wait_for_kazoo() -> None:
    reads, writes = kazoo_handler.KazooHandler(None).create_socket_pair()
    os.set_blocking(writes.fileno(), False)  # what would stop the loop for ever fails instead
    handler = kazoo_handler.KazooHandler(None)
    assert handler.select([reads], [], [], 0) == ([], [], [])
    for _ in range(1000):
        writes.send(b"\0")
    for _ in range(1000):
        assert handler.select([reads], [], [], 0) == ([reads], [], [])
        assert reads.recv(1) == b"\0"
    assert handler.select([reads], [], [], 0) == ([], [], [])
    writes.close()
    reads.close()
    with pytest.raises(OSError, match="closed"):
        writes.send(b"\0")
    with pytest.raises(OSError, match="closed"):
        reads.recv(1)


async def test_the_loop_runs_on_whatever_is_asked_while_zookeeper_is_away(hosts: str) -> None:
    server = await asyncio.to_thread(_patient().start)
    try:
        session = await connect(server.hosts, session_timeout_ms=OUTLASTS_MS)
        suspended = asyncio.Event()
        session.on_state.append(
            lambda state: suspended.set() if state is SessionState.SUSPENDED else None
        )
        restarted = asyncio.create_task(asyncio.to_thread(server.restart))
        await suspended.wait()
        asked = [asyncio.create_task(session.create(f"/{name}")) for name in range(1000)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {str, ConnectionLost}
        await restarted
        # Each request wakes kazoo once: were one wake-up lost, this would wait for another.
        assert await session.create("/last") == "/last"
        assert await session.exists("/last") is not None
        await session.close()
    finally:
        await asyncio.to_thread(server.stop)


async def test_what_was_given_up_while_zookeeper_was_away_is_not_done_when_it_is_back() -> None:
    server = await asyncio.to_thread(_patient().start)
    try:
        session = await connect(server.hosts, session_timeout_ms=OUTLASTS_MS)
        states: asyncio.Queue[SessionState] = asyncio.Queue()
        session.on_state.append(states.put_nowait)
        await asyncio.to_thread(server.kill)
        assert await states.get() is SessionState.SUSPENDED
        timeout_ms, session.session_timeout_ms = session.session_timeout_ms, 10
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await session.create("/late")
        session.session_timeout_ms = timeout_ms
        kept = asyncio.create_task(session.create("/in-time"))
        await asyncio.to_thread(server.restart)
        assert await kept == "/in-time"
        assert set(await session.children("/")) == {"in-time", "zookeeper"}
        await session.close()
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_call_that_waits_for_a_connection_is_over_with_its_session_or_its_end() -> None:
    server = await asyncio.to_thread(_patient().start)
    try:
        session = await connect(server.hosts, session_timeout_ms=OUTLASTS_MS)
        states: asyncio.Queue[SessionState] = asyncio.Queue()
        session.on_state.append(states.put_nowait)
        await asyncio.to_thread(server.kill)
        assert await states.get() is SessionState.SUSPENDED
        waiting = asyncio.create_task(session.create("/a"))
        await asyncio.sleep(0)
        session._notify_state(SessionState.LOST, 0)
        with pytest.raises(SessionExpired):
            await waiting
        waiting = asyncio.create_task(session.create("/a"))
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(ZooKeeperError, match="closed"):
            await waiting
    finally:
        await asyncio.to_thread(server.stop)


async def test_an_expired_session_is_told_as_suspended_lost_connected(
    session: ZooKeeper, server: EmbeddedZooKeeper
) -> None:
    states: asyncio.Queue[SessionState] = asyncio.Queue()
    session.on_state.append(states.put_nowait)
    fired = asyncio.Event()
    await session.create("/mine", ephemeral=True)
    await session.exists("/mine", fired.set)
    former = session.session_id
    await asyncio.to_thread(expire, session, server)
    seen = [await states.get() for _ in range(3)]
    assert seen == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    await fired.wait()
    assert session.session_id not in (0, former)
    assert await session.exists("/mine") is None


async def test_reads_wait_through_an_outage_and_every_watch_fires(hosts: str) -> None:
    chroot = "/" + hosts.partition("/")[2]
    server = await asyncio.to_thread(_patient().start)
    try:
        session = await connect(server.hosts + chroot, session_timeout_ms=OUTLASTS_MS)
        fired = asyncio.Event()
        suspended = asyncio.Event()
        session.on_state.append(
            lambda state: suspended.set() if state is SessionState.SUSPENDED else None
        )
        await session.create("/a", b"1")
        await session.get("/a", fired.set)
        restarted = asyncio.create_task(asyncio.to_thread(server.restart))
        await suspended.wait()
        await fired.wait()
        assert (await session.get("/a"))[0] == b"1"
        await restarted
        await session.close()
    finally:
        await asyncio.to_thread(server.stop)


async def test_the_negotiated_session_timeout_is_known(
    hosts: str, server: EmbeddedZooKeeper
) -> None:
    session = await connect(hosts, session_timeout_ms=100_000)
    assert session.session_timeout_ms == 10_000
    await session.close()


async def test_what_is_no_list_of_servers_is_said_to_be_none() -> None:
    for hosts in ("::::", "host:port"):
        with pytest.raises(ZooKeeperError, match="must read host:port"):
            await connect(hosts)


async def test_connecting_to_nobody_fails_in_time_and_leaves_no_thread() -> None:
    before = kazoo_threads()
    with pytest.raises(ConnectionLost, match=r"no session with ZooKeeper.*Connection refused"):
        await connect(f"127.0.0.1:{free_ports(1)[0]}", connection_timeout_ms=3_000)
    assert kazoo_threads() <= before


@pytest.fixture
def absent() -> Iterator[list[str]]:
    """Servers like machines that are off: what is sent to them is never answered."""
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            full = stack.enter_context(socket.socket())
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            stack.enter_context(socket.create_connection(full.getsockname()))
            found.append(f"127.0.0.1:{full.getsockname()[1]}")
        yield found


async def test_servers_that_are_off_cost_a_session_nothing_though_they_are_asked_first(
    absent: list[str], server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo waited for each as long as a session lasts; one of three failed a start in three."""
    monkeypatch.setattr(kazoo_handler, "ACCEPT_S", 0.1)
    monkeypatch.setattr("kazoo.protocol.connection.random.shuffle", lambda _: None)
    session = await connect(  # which kazoo would give to each of the two before the third
        ",".join([*absent, server.hosts]), session_timeout_ms=90_000, connection_timeout_ms=60_000
    )
    await session.close()


async def test_the_server_whose_connection_was_lost_is_asked_last(
    server: EmbeddedZooKeeper,
) -> None:
    """One that stands still would take what is left of the session."""
    others = [f"127.0.0.1:{port}" for port in free_ports(2)]
    session = await connect(",".join([*others, server.hosts]))
    try:
        connection = session._client._connection
        for _ in range(30):
            *_, (_, address, port) = connection._expand_client_hosts()
            assert f"{address}:{port}" == server.hosts
    finally:
        await session.close()


async def test_a_start_says_what_it_waits_for_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was silent for 18 seconds."""
    monkeypatch.setattr(connect_diagnosis, "NOTICE_S", 0.0)
    monkeypatch.setattr(connect_diagnosis, "NOTICE_AGAIN_S", 0.0)
    deaf, absent = socket.create_server(("127.0.0.1", 0)), free_ports(1)[0]
    hosts = f"127.0.0.1:{absent},127.0.0.1:{deaf.getsockname()[1]},nowhere.invalid:2181"
    connecting = asyncio.create_task(connect(hosts, connection_timeout_ms=600_000))
    while caplog.text.count("waiting for a session with ZooKeeper") < 2:
        assert not connecting.done()
        await asyncio.sleep(0.01)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    deaf.close()
    assert f"127.0.0.1:{absent}: Connection refused" in caplog.text
    assert "accepts connections, but gives no session" in caplog.text
    assert "nowhere.invalid:2181: " in caplog.text


async def test_closing_removes_ephemerals_at_once(sessions: Connect) -> None:
    first, second = await sessions(), await sessions()
    await first.create("/mine", ephemeral=True)
    gone = asyncio.Event()
    assert await second.exists("/mine", gone.set) is not None
    await first.close()
    await gone.wait()
    assert await second.exists("/mine") is None


def kazoo_threads() -> int:
    """All but those of the loop's pool, which keeps them."""
    return sum(not one.name.startswith("asyncio_") for one in threading.enumerate())


@pytest.mark.parametrize("spawned_max", [0, 1, 2])
async def test_a_fresh_session_without_a_thread_is_a_lost_connection(
    session: ZooKeeper, monkeypatch: pytest.MonkeyPatch, spawned_max: int
) -> None:
    """It ended the node that looked whether ZooKeeper still holds its cluster."""
    await session.create("/a", b"1")
    assert await session.peek("/a") == b"1"
    before, spawned = kazoo_threads(), 0
    spawn = kazoo_handler.KazooHandler.spawn

    def full(self: kazoo_handler.KazooHandler, *arguments: Any, **named: Any) -> Any:
        nonlocal spawned
        spawned += 1
        if spawned > spawned_max:
            raise RuntimeError("can't start new thread")
        return spawn(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(kazoo_handler.KazooHandler, "spawn", full)
        with pytest.raises(ConnectionLost, match="can't start new thread"):
            await session.peek("/a")
    assert kazoo_threads() <= before
    assert await session.peek("/a") == b"1"


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="a pair of sockets is used instead")
async def test_a_fresh_session_without_a_descriptor_is_a_lost_connection(
    session: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> int:
        raise OSError(24, "Too many open files")

    await session.create("/a", b"1")
    assert await session.peek("/a") == b"1"
    before = kazoo_threads()
    with monkeypatch.context() as patched:
        patched.setattr(os, "eventfd", full)
        with pytest.raises(ConnectionLost, match="Too many open files"):
            await session.peek("/a")
    assert kazoo_threads() <= before
    assert await session.peek("/a") == b"1"
