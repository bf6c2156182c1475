"""What nodes prove to each other. Source: docs/spec/security.md §6 (S71, S73)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.security.cluster_secret import NODE_USER, ClusterSecret
from barnabas.broker.security.inter_broker_client import cluster_secret, node_login
from barnabas.broker.security.listener_terms import ListenerTerms
from barnabas.broker.settings.node_config import NetworkSettings, load
from barnabas.client.connection.connection import Connection, MechanismNotOffered
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.errors import AuthenticationFailed
from barnabas.protocol.scram import SHA_256, SHA_512

CLUSTER = "the cluster"
SCRAM_ONLY = {"listener.name.internal.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
PLAIN_ONLY = {"listener.name.internal.sasl.enabled.mechanisms": "PLAIN"}
BOTH: dict[str, str] = {}


def settings(**values: str) -> dict[str, str]:
    return {
        "zookeeper.connect": "z:1",
        "log.dirs": "/d",
        "cluster.secret": "s3cret",
        "connection.failed.authentication.delay.ms": "0",
        **values,
    }


@contextlib.asynccontextmanager
async def node(**values: str) -> AsyncIterator[int]:
    """The inter-broker listener of a node with these settings; its port."""
    config = load(settings(**values))

    class NoUsers:
        def find(self, *_: object) -> tuple[()]:
            raise AssertionError("users of ZooKeeper are no nodes")

    terms = ListenerTerms(config, cluster_secret(config, CLUSTER), NoUsers())  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as tasks:
        dispatcher = Dispatcher(tasks)
        dispatcher.register(ApiVersionsHandler(dispatcher.supported_versions).handlers())
        dispatcher.register(sasl_handlers.handlers())
        listener = Listener(
            "INTERNAL",
            dispatcher,
            Limits(NetworkSettings()),
            is_internal=True,
            sasl=terms.of("INTERNAL", config.listener_sasl["INTERNAL"]),
        )
        port = await listener.bind("127.0.0.1", 0)
        listener.serve()
        yield port
        await listener.close()


async def dial(port: int, login: SaslLogin | None) -> None:
    async with await Connection.open("127.0.0.1", port, sasl=login):
        return


def login(**values: str) -> SaslLogin | None:
    config = load(settings(**values))
    return node_login(config, cluster_secret(config, CLUSTER))


@pytest.mark.parametrize("offered", [BOTH, SCRAM_ONLY, PLAIN_ONLY], ids=["both", "scram", "plain"])
async def test_nodes_of_one_secret_let_each_other_in(offered: dict[str, str]) -> None:
    """S71: PLAIN alone is what an older node offers, and a broker of Kafka's own."""
    async with node(**offered) as port:
        await dial(port, login())
        await dial(port, login())


@pytest.mark.parametrize("offered", [BOTH, PLAIN_ONLY], ids=["both", "plain"])
async def test_an_older_node_that_speaks_only_plain_is_let_in(offered: dict[str, str]) -> None:
    async with node(**offered) as port:
        await dial(port, SaslLogin(NODE_USER, "s3cret"))


async def test_once_plain_is_switched_off_nobody_is_let_in_by_it() -> None:
    async with node(**SCRAM_ONLY) as port:
        with pytest.raises(MechanismNotOffered, match="offers: SCRAM-SHA-512"):
            await dial(port, SaslLogin(NODE_USER, "s3cret"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("name", "secret"), [(NODE_USER, "guess"), ("alice", "s3cret")])
async def test_neither_another_secret_nor_another_name_lets_anybody_in(
    mechanism: str, name: str, secret: str
) -> None:
    async with node() as port:
        with pytest.raises(AuthenticationFailed):
            await dial(port, SaslLogin(name, secret, (mechanism,)))


async def test_the_secret_never_travels_to_a_node_that_offers_scram() -> None:
    """S71: who was seen to offer it is never asked by PLAIN again, even where it stops to."""
    mine = login()
    assert mine is not None
    async with node() as port:
        await dial(port, mine)
    peer = f"127.0.0.1:{port}"
    assert mine.choice(peer, 1e9) == "SCRAM-SHA-512"
    assert mine.other_choice(peer, "SCRAM-SHA-512", ["PLAIN"], 0.0) == ""
    assert mine.other_choice("another", "SCRAM-SHA-512", ["PLAIN"], 0.0) == "PLAIN"


async def test_a_lesser_mechanism_is_remembered_for_some_minutes_only() -> None:
    """An upgraded node is dialled by SCRAM from then on."""
    mine = login()
    assert mine is not None
    assert mine.other_choice("a:1", "SCRAM-SHA-512", ["PLAIN"], 100.0) == "PLAIN"
    assert mine.choice("a:1", 699.0) == "PLAIN"
    assert mine.choice("a:1", 700.0) == "SCRAM-SHA-512"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_node_may_be_told_by_which_mechanism_it_proves_the_secret(mechanism: str) -> None:
    mine = login(**{"sasl.mechanism.inter.broker.protocol": mechanism})
    assert mine is not None
    assert mine.mechanisms == (mechanism,)
    async with node() as port:
        await dial(port, mine)


async def test_both_secrets_are_accepted_while_one_replaces_the_other() -> None:
    """S73: node by node, first as the previous one, then as the one that is proved."""
    async with node(**{"cluster.secret": "new", "cluster.secret.previous": "old"}) as port:
        for secret in ("new", "old"):
            for mechanism in ("PLAIN", "SCRAM-SHA-512"):
                known = login(**{"cluster.secret": secret})
                assert known is not None
                await dial(port, known)
                await dial(port, SaslLogin(NODE_USER, secret, (mechanism,)))
        with pytest.raises(AuthenticationFailed):
            await dial(port, login(**{"cluster.secret": "older"}))


def test_each_use_of_the_secret_has_a_label_of_its_own() -> None:
    """S73: and clusters that share a secret share nothing that is derived from it."""
    one, other = ClusterSecret("one", "s"), ClusterSecret("other", "s")
    (mine,), (theirs,) = (found.find_credentials(SHA_512, NODE_USER) for found in (one, other))
    assert mine.salt != theirs.salt
    assert mine.stored_key != theirs.stored_key
    assert one.decoy_secret not in (mine.salt, mine.stored_key, mine.server_key)
    assert one.find_credentials(SHA_256, NODE_USER) == ()
    assert one.find_credentials(SHA_512, "alice") == ()


def test_a_nodes_login_is_derived_before_the_first_node_is_dialled() -> None:
    """No turn of the loop lasts as long as that takes, and no thread is needed."""
    secret = ClusterSecret("one", "s")
    known = secret.login(("SCRAM-SHA-512",))
    (credential,) = secret.find_credentials(SHA_512, NODE_USER)
    assert ("SCRAM-SHA-512", (credential.salt, credential.iterations)) in known._salted


def test_no_secret_is_shown() -> None:
    """S91."""
    config = load(settings(**{"cluster.secret": "canary", "cluster.secret.previous": "canary2"}))
    known = node_login(config, cluster_secret(config, CLUSTER))
    assert "canary" not in repr((config, known))
