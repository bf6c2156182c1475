"""Users in ZooKeeper and the requests that change them. Source: docs/spec/security.md §2."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.broker.handlers.scram_users import ScramUsersHandler
from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.security.credential_cache import CredentialCache
from barnabas.broker.security.scram_credentials import ScramCredentials
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import ConnectionLost
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import alter_user_scram_credentials as altering
from barnabas.protocol.messages import describe_user_scram_credentials as describing
from barnabas.protocol.scram import SHA_256, SHA_512, salted_password
from barnabas.protocol.zookeeper import user_znodes, znodes
from tests.handlers.peer import call
from tests.harness.sasl_terms import credential_of
from tests.sim.simulated_zookeeper import SimEnsemble

NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


@dataclass
class Administration:
    """A controller's handler, another node that follows, and a session to look with."""

    ensemble: SimEnsemble
    handler: ScramUsersHandler
    caches: list[CredentialCache]
    session: Any
    is_controller: bool = True
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def alter(
        self,
        upsertions: list[altering.Upsertion] | None = None,
        deletions: list[altering.Deletion] | None = None,
    ) -> list[tuple[str, int, str | None]]:
        request = altering.AlterUserScramCredentialsRequest(
            upsertions=upsertions or [], deletions=deletions or []
        )
        answer = await self.handler.alter(call(request, 0))
        return [(one.user, one.error_code, one.error_message) for one in answer.results]

    async def describe(self, *users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
        named = [describing.User(name=user) for user in users] or None
        request = describing.DescribeUserScramCredentialsRequest(users=named)
        answer = await self.handler.describe(call(request, 0))
        assert answer.error_code == 0
        return [
            (
                one.user,
                one.error_code,
                [(info.mechanism, info.iterations) for info in one.credential_infos],
            )
            for one in answer.results
        ]

    async def config(self, path: str) -> Mapping[str, str]:
        data, _ = await self.session.get(path)
        found: dict[str, str] = json.loads(data)["config"]
        return found


@pytest.fixture
async def administration() -> AsyncIterator[Administration]:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    session = ensemble.connect()
    await create_persistent_znodes(session)
    caches, tasks = [], []
    for _ in range(2):
        follower = ensemble.connect()
        cache, configs = CredentialCache(follower), TopicConfigs(follower, lambda: 0)
        configs.on_entities.setdefault("users", []).append(cache.follow)
        await configs.load()
        await cache.load()
        caches.append(cache)
        tasks.append(asyncio.create_task(configs.run()))
    made = Administration(ensemble, None, caches, session)  # type: ignore[arg-type]
    made.handler = ScramUsersHandler(
        caches[0], ScramCredentials(session), is_controller=lambda: made.is_controller
    )
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def upsertion(
    name: str, mechanism: int = 1, iterations: int = 4096, **words: bytes
) -> altering.Upsertion:
    digest = {1: SHA_256, 2: SHA_512}.get(mechanism, SHA_256)
    given = {"salt": b"salt", "salted_password": salted_password(digest, "p", b"salt", 4096)}
    return altering.Upsertion(
        name=name, mechanism=mechanism, iterations=iterations, **{**given, **words}
    )


def deletion(name: str, mechanism: int = 1) -> altering.Deletion:
    return altering.Deletion(name=name, mechanism=mechanism)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


async def test_a_credential_is_written_as_kafka_does_and_known_on_every_node(
    administration: Administration,
) -> None:
    """S32, S33: under the escaped name, with a note that names the user."""
    assert await administration.alter([upsertion("a b"), upsertion("a b", 2)]) == [("a b", 0, None)]
    config = await administration.config("/config/users/a%20b")
    expected = {
        one.name: user_znodes.credential_text(credential_of(one, "p")) for one in (SHA_256, SHA_512)
    }
    assert config == expected
    (note,) = await administration.session.children(znodes.CONFIG_CHANGES)
    data, _ = await administration.session.get(f"{znodes.CONFIG_CHANGES}/{note}")
    assert json.loads(data) == {"version": 2, "entity_path": "users/a%20b"}
    assert administration.caches[0].find(SHA_512, "a b") == (credential_of(SHA_512, "p"),)
    await until(lambda: administration.caches[1].find(SHA_256, "a b"))
    assert administration.caches[1].find(SHA_256, "a%20b") == ()


async def test_what_else_a_user_is_given_stays(administration: Administration) -> None:
    """S32: quotas stand in the same znode."""
    path = user_znodes.user_path("alice")
    quota = znodes.EntityConfig(config={"producer_byte_rate": "1024"})
    await administration.session.create(path, quota.to_json())
    await administration.alter([upsertion("alice")])
    assert set(await administration.config(path)) == {"producer_byte_rate", "SCRAM-SHA-256"}
    await administration.alter(deletions=[deletion("alice")])
    assert await administration.config(path) == {"producer_byte_rate": "1024"}


async def test_a_removed_credential_is_gone_on_every_node(administration: Administration) -> None:
    await administration.alter([upsertion("alice"), upsertion("alice", 2)])
    await until(lambda: len(administration.caches[1].of("alice")) == 2)
    assert await administration.alter(deletions=[deletion("alice", 2)]) == [("alice", 0, None)]
    await until(lambda: len(administration.caches[1].of("alice")) == 1)
    assert administration.caches[0].find(SHA_512, "alice") == ()


async def test_a_deletion_whose_answer_was_lost_is_known_on_every_node(
    administration: Administration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note was lost with the connection, and who asked again was told that all is done."""
    await administration.alter([upsertion("alice")])
    await until(lambda: administration.caches[1].of("alice"))
    session, losses = administration.session, [ConnectionLost("no answer")]
    for name in ("set", "multi"):
        change = getattr(session, name)

        async def changed(*arguments: Any, change: Any = change) -> Any:
            answer = await change(*arguments)
            if losses:
                raise losses.pop()
            return answer

        monkeypatch.setattr(session, name, changed)
    ((_, code, _),) = await administration.alter(deletions=[deletion("alice")])
    assert code == ErrorCode.REQUEST_TIMED_OUT
    ((_, code, _),) = await administration.alter(deletions=[deletion("alice")])
    assert code == ErrorCode.RESOURCE_NOT_FOUND
    await until(lambda: not administration.caches[1].of("alice"))
    await until(lambda: not administration.caches[0].of("alice"))


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([upsertion("")], 93, "Username must not be empty"),
        ([deletion("")], 93, "Username must not be empty"),
        ([upsertion("", 9, 1)], 93, "Username must not be empty"),
        ([upsertion("u", 9, 1)], 33, "Unknown SCRAM mechanism"),
        ([deletion("u", 0)], 33, "Unknown SCRAM mechanism"),
        ([upsertion("u", 1, 4095)], 93, "Too few iterations"),
        ([upsertion("u", 1, 16385)], 93, "Too many iterations"),
        ([upsertion("u", 1, -1), upsertion("u", 1)], 93, "Too few iterations"),
        ([upsertion("u"), upsertion("u")], 92, "twice in the same request"),
        ([upsertion("u"), deletion("u")], 92, "twice in the same request"),
        ([deletion("u"), upsertion("u", 2)], 91, "does not exist"),
        ([deletion("u")], 91, "does not exist"),
        ([upsertion("u", salt=b"")], 93, "needs a salt"),
        ([upsertion("u", salt=bytes(2000))], 93, "needs a salt"),
        ([upsertion("u", salted_password=b"short")], 93, "of 32 bytes"),
        ([upsertion("u", 2, salted_password=bytes(32))], 93, "of 64 bytes"),
        ([upsertion(".")], 93, "cannot be the name"),
    ],
)
async def test_what_cannot_be_done_has_kafkas_code_and_changes_nothing(
    administration: Administration, changes: list[Any], code: int, message: str
) -> None:
    """S33, in this order."""
    upsertions = [change for change in changes if isinstance(change, altering.Upsertion)]
    deletions = [change for change in changes if isinstance(change, altering.Deletion)]
    results = await administration.alter([*upsertions, upsertion("other")], deletions)
    found = {user: (error, text) for user, error, text in results}
    assert found.pop("other") == (0, None)
    ((user, (error, text)),) = found.items()
    assert (user, error) == (changes[0].name, code)
    assert text is not None
    assert message in text
    assert await administration.session.children(user_znodes.USERS) == ["other"]


async def test_only_the_controller_changes_users(administration: Administration) -> None:
    """S33: 41 for each user, before anything else is judged."""
    administration.is_controller = False
    results = await administration.alter([upsertion("a"), upsertion("")])
    assert [(user, error) for user, error, _ in results] == [("a", 41), ("", 41)]
    assert await administration.session.children(user_znodes.USERS) == []


async def test_users_are_described_with_mechanisms_and_iterations_only(
    administration: Administration,
) -> None:
    """S33: all of them in order, or those that are named, each with its own code."""
    await administration.alter([upsertion("b", 2, 8192), upsertion("a"), upsertion("b")])
    assert await administration.describe() == [
        ("a", 0, [(1, 4096)]),
        ("b", 0, [(1, 4096), (2, 8192)]),
    ]
    assert await administration.describe("b", "nobody", "", "a", "a") == [
        ("b", 0, [(1, 4096), (2, 8192)]),
        ("nobody", 91, []),
        ("", 91, []),
        ("a", 92, []),
    ]


async def test_who_is_described_is_who_zookeeper_has_now(administration: Administration) -> None:
    """A user that was altered at another node, and is not announced here yet."""
    text = user_znodes.credential_text(credential_of(SHA_256, "p"))
    data = znodes.EntityConfig(config={"SCRAM-SHA-256": text}).to_json()
    await administration.session.create(user_znodes.user_path("new"), data)
    assert await administration.describe("new") == [("new", 0, [(1, 4096)])]
    await administration.session.delete(user_znodes.user_path("new"))
    assert await administration.describe() == []


async def test_users_are_described_from_memory_without_zookeeper(
    administration: Administration, monkeypatch: pytest.MonkeyPatch
) -> None:
    await administration.alter([upsertion("a")])

    async def lost(*_: Any) -> None:
        raise ConnectionLost("gone")

    monkeypatch.setattr(administration.caches[0], "load", lost)
    assert await administration.describe() == [("a", 0, [(1, 4096)])]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"version":1,"config":{}}',
        b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==,iterations=4096"}}',
        b'{"version":1,"config":{"SCRAM-SHA-256":7}}',
        b'{"version":1,"config":{"producer_byte_rate":"1"}}',
    ],
)
async def test_a_user_that_cannot_be_read_is_nobody(
    administration: Administration, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a traceback nor an open door; what stood there before counts no longer."""
    await administration.alter([upsertion("alice")])
    await administration.session.set(user_znodes.user_path("alice"), data, -1)
    await administration.caches[1].load()
    assert administration.caches[1].of("alice") == {}
    assert "c2FsdA" not in caplog.text


async def test_the_default_user_and_misspelt_names_are_nobody(
    administration: Administration,
) -> None:
    text = user_znodes.credential_text(credential_of(SHA_256, "p"))
    data = znodes.EntityConfig(config={"SCRAM-SHA-256": text}).to_json()
    for znode in ("<default>", "a b", "%61"):
        await administration.session.create(f"{user_znodes.USERS}/{znode}", data)
    await administration.session.create(user_znodes.user_path("<default>"), data)
    await administration.caches[1].load()
    assert set(administration.caches[1].users) == {"<default>"}


async def test_two_who_change_a_user_at_once_both_succeed(administration: Administration) -> None:
    """S32: written conditionally, so that neither takes the other's back."""
    both = ScramCredentials(administration.session)
    await asyncio.gather(
        both.change("alice", {"SCRAM-SHA-256": credential_of(SHA_256, "p")}),
        both.change("alice", {"SCRAM-SHA-512": credential_of(SHA_512, "p")}),
    )
    config = await administration.config(user_znodes.user_path("alice"))
    assert set(config) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}


async def test_a_user_whose_settings_cannot_be_read_is_not_overwritten(
    administration: Administration,
) -> None:
    await administration.session.create(user_znodes.user_path("alice"), b"{")
    with pytest.raises(Refused) as refused:
        await ScramCredentials(administration.session).change(
            "alice", {"SCRAM-SHA-256": credential_of(SHA_256, "p")}
        )
    assert refused.value.code is ErrorCode.INVALID_CONFIG
