"""Who may do what with the znodes of nodes that are somebody to ZooKeeper (S67, S68, S70)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.tls.contexts import ClientTls
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.client.zookeeper.identity import ZooKeeperIdentity, ZooKeeperLogin
from barnabas.client.zookeeper.interface import (
    ConnectionLost,
    Create,
    MultiFailed,
    NoAuth,
    NodeExists,
    Set,
    ZooKeeper,
    ensure,
)
from barnabas.client.zookeeper.kazoo_session import KazooSession, connect
from barnabas.client.zookeeper.znode_acl import ALL, READ, WORLD, ZnodeAcl
from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.zookeeper_security import ZooKeeperSecurity, client_jaas
from tests.harness.secured_zookeeper import LOGIN, NODES, PASSWORD, jaas_file, login_settings
from tests.harness.tls_files import TlsFiles
from tests.zookeeper.conftest import CONNECT_MS, OUTLASTS_MS, TICK_MS
from tests.zookeeper.conftest import _chroots as chroots

SESSION_MS: Final = 10_000
REFUSED_MS: Final = 20_000
"""Java has to take up the login before it can refuse it."""
OWN: Final = ZnodeAcl("sasl:kafka", ALL)
READABLE: Final = [OWN, ZnodeAcl(WORLD, READ)]
OPEN: Final = [ZnodeAcl(WORLD, ALL)]
As = Callable[[ZooKeeperIdentity | None], Awaitable[KazooSession]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    jaas = jaas_file(tmp_path_factory.mktemp("guarded"))
    with EmbeddedZooKeeper(security=ZooKeeperSecurity(jaas=jaas)) as server:
        yield server


@pytest.fixture
def tree(guarded: EmbeddedZooKeeper) -> str:
    return f"{guarded.hosts}/guarded-{next(chroots)}"


@pytest.fixture
async def connected_as(tree: str) -> AsyncIterator[As]:
    opened: list[KazooSession] = []

    async def connected(identity: ZooKeeperIdentity | None) -> KazooSession:
        opened.append(
            await connect(
                tree,
                session_timeout_ms=SESSION_MS,
                connection_timeout_ms=CONNECT_MS,
                identity=identity,
            )
        )
        return opened[-1]

    yield connected
    for session in opened:
        await session.close()


@pytest.mark.parametrize(
    ("path", "entries"),
    [
        ("/", READABLE),
        ("/brokers/ids", READABLE),
        ("/config/topics/t", READABLE),
        ("/config/users", [OWN]),
        ("/config/users/alice", [OWN]),
        ("/config/brokers/1", [OWN]),
        ("/delegation_token/tokens/id", [OWN]),
        ("/consumers/g/offsets/t/0", OPEN),
    ],
)
async def test_what_a_node_creates_is_its_own_and_passwords_are_not_read_by_others(
    connected_as: As, path: str, entries: list[ZnodeAcl]
) -> None:
    """Parents, too, that are created on the way."""
    session = await connected_as(NODES)
    if path != "/":
        await session.create(path, b"x", parents=True)
    assert sorted(await session.acl(path), key=str) == sorted(entries, key=str)


async def test_without_set_acl_a_login_secures_nothing(connected_as: As) -> None:
    session = await connected_as(ZooKeeperIdentity((LOGIN,)))
    await session.multi(Create("/a", b"1"))
    await session.create("/b", b"1")
    assert await session.acl("/a") == await session.acl("/b") == OPEN


async def test_a_stranger_changes_nothing_and_what_he_may_not_see_is_not_taken_for_absent(
    connected_as: As,
) -> None:
    node = await connected_as(NODES)
    await node.multi(Create("/brokers"), Create("/brokers/ids"))
    await node.create("/config/users/alice", b"secret", parents=True)
    stranger = await connected_as(None)
    refused: list[Awaitable[object]] = [
        stranger.set("/brokers", b"mine"),
        stranger.create("/brokers/x"),
        stranger.delete("/brokers/ids"),
        stranger.create("/mine"),
        stranger.get("/config/users/alice"),
        stranger.children("/config/users"),
        stranger.acl("/config/users/alice"),
    ]
    for call in refused:
        with pytest.raises(NoAuth, match="not at /"):
            await call
    assert (await stranger.get("/brokers"))[0] == b""
    assert await stranger.children("/brokers") == ["ids"]
    assert (await node.get("/config/users/alice"))[0] == b"secret"


async def test_a_refused_multi_says_which_operation_and_applies_none(connected_as: As) -> None:
    node, stranger = await connected_as(NODES), await connected_as(None)
    await node.create("/consumers")
    await node.create("/brokers")
    with pytest.raises(MultiFailed) as failed:
        await stranger.multi(Create("/consumers/g"), Set("/brokers", b"mine"))
    assert failed.value.index == 1
    assert isinstance(failed.value.error, NoAuth)
    assert await node.exists("/consumers/g") is None


async def test_what_is_there_already_is_not_missed_by_who_may_not_create_it(
    connected_as: As,
) -> None:
    """ZooKeeper answers NoAuth before it looks whether the znode is there."""
    node, stranger = await connected_as(NODES), await connected_as(None)
    await ensure(node, "/brokers/ids")
    await ensure(stranger, "/brokers/ids")
    with pytest.raises(NoAuth):
        await ensure(stranger, "/brokers/topics")


async def test_a_refusal_is_an_error_in_the_log_once_a_minute_for_each_znode(
    connected_as: As, caplog: pytest.LogCaptureFixture
) -> None:
    await connected_as(NODES)
    stranger = await connected_as(None)
    with caplog.at_level(logging.ERROR):
        for path in ("/a", "/a", "/b"):
            with pytest.raises(NoAuth):
                await stranger.create(path)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" not at ")[1].split(":")[0][-2:] for line in lines] == ["/a", "/b"]


async def test_a_wrong_password_gives_no_session_and_is_told_nowhere(
    guarded: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ZooKeeperIdentity((ZooKeeperLogin("sasl", "kafka", "Wrong.Canary"),))
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ConnectionLost, match="refuses the login of sasl:kafka") as refused,
    ):
        await connect(
            guarded.hosts,
            session_timeout_ms=SESSION_MS,
            connection_timeout_ms=REFUSED_MS,
            identity=wrong,
        )
    assert "Canary" not in str(refused.value) + caplog.text + repr(wrong) + repr(NODES)


async def test_a_session_outlives_another_password_that_its_node_knows(tmp_path: Path) -> None:
    """So a password is replaced, one server after the other, without a node that is lost."""
    new = ZooKeeperLogin("sasl", "kafka", "another")
    jaas = jaas_file(tmp_path)
    security = ZooKeeperSecurity(jaas=jaas)
    with EmbeddedZooKeeper(tmp_path / "data", TICK_MS, security=security) as server:
        both = ZooKeeperIdentity((LOGIN, new), secures=True)
        session = await connect(
            server.hosts,
            session_timeout_ms=OUTLASTS_MS,
            connection_timeout_ms=CONNECT_MS,
            identity=both,
        )
        try:
            await session.create("/brokers", b"1")
            await session.create("/brokers/me", ephemeral=True)
            before = session.session_id
            jaas_file(tmp_path, new)
            server.restart()
            await session.exists("/brokers")  # waits for the connection
            await session.set("/brokers", b"2")
            assert session.session_id == before
            stat = await session.exists("/brokers/me")
            assert stat is not None
            assert stat.ephemeral_owner == before
            assert await session.acl("/brokers") == READABLE
        finally:
            await session.close()


async def test_of_two_digests_each_owns_what_is_created(connected_as: As) -> None:
    """ZooKeeper's digest needs nothing on the servers: so it can be replaced without them."""
    old, new = (ZooKeeperLogin("digest", "kafka", password) for password in ("old", "new"))
    former = await connected_as(ZooKeeperIdentity((old,), secures=True))
    await former.create("/brokers", b"1")
    both = await connected_as(ZooKeeperIdentity((old, new), secures=True))
    await both.set("/brokers", b"2")
    await both.create("/brokers/ids")
    latter = await connected_as(ZooKeeperIdentity((new,), secures=True))
    await latter.set("/brokers/ids", b"3")
    with pytest.raises(NoAuth):
        await latter.set("/brokers", b"3")
    assert {entry.id for entry in await both.acl("/brokers/ids")} == {old.id, new.id, WORLD}


async def test_a_certificate_is_an_identity_of_its_own(tmp_path: Path) -> None:
    """x509 over TLS: nodes with certificates of one name are one."""
    files = TlsFiles(tmp_path)
    security = ZooKeeperSecurity(keystore=files.node, truststore=files.trust, client_auth="need")
    with EmbeddedZooKeeper(security=security) as server:
        node = await _connected_by_tls(server, files, files.client)
        stranger = await _connected_by_tls(server, files, files.node)
        try:
            await node.create("/brokers")
            entries = await node.acl("/brokers")
            assert [one.id for one in entries if one.permissions == ALL] == ["x509:CN=alice,C=US"]
            with pytest.raises(NoAuth):
                await stranger.set("/brokers", b"")
        finally:
            await node.close()
            await stranger.close()


async def _connected_by_tls(
    server: EmbeddedZooKeeper, files: TlsFiles, keystore: Path
) -> KazooSession:
    settings = TlsSettings(
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(files.trust),
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(keystore),
    )
    return await connect(
        server.hosts,
        session_timeout_ms=SESSION_MS,
        connection_timeout_ms=CONNECT_MS,
        tls=ClientTls(settings),
        identity=ZooKeeperIdentity(secures=True),
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "zookeeper.properties"
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in login_settings().items()))
    return path


async def _fill(zookeeper: ZooKeeper) -> None:
    for path in ("/brokers/topics/t", "/config/users/alice", "/consumers/g", "/controller"):
        await zookeeper.create(path, b"1", parents=True)


def typed(
    capsys: pytest.CaptureFixture[str], tree: str, config: Path, *words: str
) -> tuple[int, str]:
    """The exit code of ``barnabas zookeeper`` with these words, and all that it said."""
    options = ("--zookeeper", tree, "--command-config", str(config))
    code = main(["zookeeper", *words, *options])
    said = capsys.readouterr()
    return code, said.out + said.err


async def test_a_tree_is_given_to_the_nodes_and_back_and_nothing_without_execute(
    connected_as: As, tree: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = await connected_as(None)
    await _fill(nobody)

    async def run(*words: str) -> tuple[int, str]:
        return await asyncio.to_thread(typed, capsys, tree, config, *words)

    code, said = await run("secure")
    assert (code, "dry run: nothing was changed" in said) == (0, True)
    assert await nobody.acl("/controller") == OPEN
    code, said = await run("secure", "--keep-root")
    assert (code, "/ stays as it is" in said) == (0, True)
    code, said = await run("secure", "--execute", "--json")
    assert code == 0
    changed = json.loads(said)["changed"]
    assert "/consumers" not in changed
    assert {"/", "/brokers/topics/t", "/config/users/alice", "/controller"} <= set(changed)
    with pytest.raises(NoAuth):
        await nobody.delete("/controller")  # the root's list decides
    with pytest.raises(NoAuth):
        await nobody.get("/config/users/alice")
    await nobody.create("/consumers/g/offsets")
    assert "as they should be" in (await run("secure"))[1]
    code, said = await run("open", "--execute")
    assert (code, "CHANGED" in said) == (0, True)
    await nobody.delete("/controller")


async def test_a_digest_is_replaced_without_a_word_to_the_servers(
    connected_as: As, tree: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/security.md, "Rotation": both own, then the new one alone."""
    old, new = (ZooKeeperLogin("digest", "kafka", password) for password in ("old", "new"))
    await (await connected_as(ZooKeeperIdentity((old,), secures=True))).create("/brokers", b"1")
    lines = ["zookeeper.auth.scheme=digest", f"zookeeper.jaas.config={client_jaas(old)}"]
    lines.append(f"zookeeper.jaas.config.previous={client_jaas(new)}")
    await asyncio.to_thread(config.write_text, "\n".join(lines))
    words = ("secure", "--execute")
    assert (await asyncio.to_thread(typed, capsys, tree, config, *words))[0] == 0
    session = await connected_as(ZooKeeperIdentity((new,), secures=True))
    assert {one.id for one in await session.acl("/brokers")} == {old.id, new.id, WORLD}
    lines = [lines[0], f"zookeeper.jaas.config={client_jaas(new)}"]
    await asyncio.to_thread(config.write_text, "\n".join(lines))
    assert (await asyncio.to_thread(typed, capsys, tree, config, *words))[0] == 0
    assert {one.id for one in await session.acl("/brokers")} == {new.id, WORLD}
    await session.set("/brokers", b"2")


async def test_what_is_another_identitys_is_told_and_ends_with_1(
    connected_as: As, tree: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ZooKeeperIdentity((ZooKeeperLogin("digest", "other", "x"),), secures=True)
    await (await connected_as(other)).create("/brokers")
    code, said = await asyncio.to_thread(typed, capsys, tree, config, "secure", "--execute")
    assert code == 1
    assert "they are another identity's" in said


def test_the_commands_refuse_to_give_znodes_to_nobody(
    tree: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zookeeper", "secure", "--zookeeper", tree]) == 1
    assert "nobody would own the znodes" in capsys.readouterr().err


async def test_creating_what_is_there_is_told_as_such_to_an_owner(connected_as: As) -> None:
    node = await connected_as(NODES)
    await node.create("/brokers")
    with pytest.raises(NodeExists):
        await node.create("/brokers")
    assert PASSWORD not in repr(node.__dict__.get("_identity"))
