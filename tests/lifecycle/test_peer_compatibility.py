"""Asking the registered nodes, on real listeners, whether they speak with this one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.lifecycle import peer_compatibility
from barnabas.broker.lifecycle.peer_compatibility import (
    PeerAnswer,
    Peers,
    PeerVerdict,
    RegisteredPeer,
)
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.broker.settings.sasl_settings import NODES_MECHANISMS
from barnabas.client.zookeeper.interface import ensure
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.api import ApiKey
from barnabas.protocol.zookeeper import znodes
from tests.harness.sasl_terms import login_of_node, terms_of_nodes
from tests.sim.simulated_zookeeper import SimEnsemble

OURS = 2
THEIRS = 1
CLUSTER = "the cluster"
BETWEEN_NODES = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.UPDATE_METADATA,
    ApiKey.STOP_REPLICA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)


@pytest.fixture(autouse=True)
def _patient_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a login may take more than 2 s, and whoever is late is silent."""
    monkeypatch.setattr(peer_compatibility, "ASK_MS", 60_000)


@contextlib.asynccontextmanager
async def node(
    secret: str | None = None,
    *,
    cluster: str = CLUSTER,
    lacking: ApiKey | None = None,
    mechanisms: Sequence[str] = NODES_MECHANISMS,
) -> AsyncIterator[int]:
    """The inter-broker listener of a node; its port."""
    async with asyncio.TaskGroup() as tasks:
        dispatcher = Dispatcher(tasks)
        dispatcher.register(ApiVersionsHandler(dispatcher.supported_versions).handlers())
        dispatcher.register(sasl_handlers.handlers())
        dispatcher.register(MetadataHandler(MetadataCache(), cluster, create=None).handlers())
        for key in BETWEEN_NODES:
            if key is not lacking:
                dispatcher.register({key: lambda call: None})
        sasl = terms_of_nodes(secret, CLUSTER, mechanisms)
        limits = Limits(NetworkSettings())
        listener = Listener("INTERNAL", dispatcher, limits, is_internal=True, sasl=sasl)
        port = await listener.bind(LOOPBACK, 0)
        listener.serve()
        yield port
        await listener.close()


async def answer(
    port: int,
    *,
    secret: str | None = None,
    listener: str = "INTERNAL",
    theirs: str = "INTERNAL",
    mechanisms: Sequence[str] = NODES_MECHANISMS,
) -> PeerAnswer:
    """What comes of asking the node at this port."""
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    login = login_of_node(secret, CLUSTER, mechanisms)
    peers = Peers(zookeeper, OURS, CLUSTER, listener=listener, login=login)
    registration = znodes.BrokerRegistration(endpoints={theirs: (LOOPBACK, port)}, timestamp=0)
    return await peers.ask(RegisteredPeer(THEIRS, 7, registration))


@pytest.mark.parametrize("secret", [None, "secret"])
async def test_nodes_of_one_secret_or_of_none_accept_each_other(secret: str | None) -> None:
    async with node(secret) as port:
        assert await answer(port, secret=secret) == PeerAnswer(PeerVerdict.ACCEPTED)


@pytest.mark.parametrize("theirs", [("PLAIN",), ("PLAIN", "SCRAM-SHA-512")])
async def test_a_node_that_speaks_only_plain_is_spoken_to_as_before(theirs: list[str]) -> None:
    """S71: an older node during a rolling upgrade, or a broker of Kafka's own."""
    async with node("secret", mechanisms=theirs) as port:
        found = await answer(port, secret="secret")
        assert found == PeerAnswer(PeerVerdict.ACCEPTED)
        assert await answer(port, secret="secret", mechanisms=("PLAIN",)) == found


async def test_a_node_that_may_not_speak_plain_says_which_mechanisms_it_met() -> None:
    async with node("secret", mechanisms=("PLAIN",)) as port:
        found = await answer(port, secret="secret", mechanisms=("SCRAM-SHA-512",))
    assert found.verdict is PeerVerdict.REFUSED
    assert "offers: PLAIN" in found.reason


@pytest.mark.parametrize(
    ("theirs", "ours", "cause"),
    [
        pytest.param("secret", "another", "is not the cluster's", id="another"),
        pytest.param("secret", None, "this node has none", id="none here"),
        pytest.param(None, "secret", "asks for no cluster.secret", id="none there"),
    ],
)
async def test_a_node_that_cannot_prove_the_secret_is_refused_and_both_causes_are_named(
    theirs: str | None, ours: str | None, cause: str
) -> None:
    async with node(theirs) as port:
        found = await answer(port, secret=ours)
    assert found.verdict is PeerVerdict.REFUSED
    assert cause in found.reason
    assert "or zookeeper.connect leads to a cluster" in found.reason


@pytest.mark.parametrize("lacking", BETWEEN_NODES, ids=lambda key: key.name)
async def test_a_node_whose_protocol_does_not_fit_is_refused(lacking: ApiKey) -> None:
    async with node(lacking=lacking) as port:
        found = await answer(port)
    assert found.verdict is PeerVerdict.REFUSED
    assert "another protocol" in found.reason


async def test_a_node_without_a_listener_of_our_name_is_refused_while_it_lives() -> None:
    async with node() as port:
        found = await answer(port, listener="REPLICATION")
    assert found.verdict is PeerVerdict.REFUSED
    assert "inter.broker.listener.name" in found.reason
    assert (await answer(port, listener="REPLICATION")).verdict is PeerVerdict.SILENT


async def test_a_dead_node_refuses_nobody() -> None:
    assert (await answer(free_ports(1)[0])).verdict is PeerVerdict.SILENT


async def test_somebody_else_at_the_address_of_a_node_refuses_nobody() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greet, LOOPBACK, 0)
    async with server:
        found = await answer(server.sockets[0].getsockname()[1])
    assert found.verdict is PeerVerdict.SILENT
    async with node(cluster="another cluster") as port:
        found = await answer(port)
    assert found.verdict is PeerVerdict.SILENT
    assert "another cluster" in found.reason


async def test_a_registration_that_no_session_holds_keeps_no_start_waiting() -> None:
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    await ensure(zookeeper, znodes.BROKER_IDS)
    registration = znodes.BrokerRegistration(endpoints={"INTERNAL": (LOOPBACK, 1)}, timestamp=0)
    await zookeeper.create(znodes.broker_path(THEIRS), registration.to_json())
    peers = Peers(zookeeper, OURS, CLUSTER, listener="INTERNAL", login=None)
    assert not await peers.await_acceptance()
