"""Delegation tokens on two nodes that share a ZooKeeper: docs/spec/security.md §2 (S37), S101."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.delegation_tokens import DelegationTokensHandler
from barnabas.broker.security import delegation_tokens
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.exchange import AuthenticationFailed, Outcome
from barnabas.broker.security.scram import ScramExchange
from barnabas.broker.settings.delegation_token_settings import DelegationTokenSettings
from barnabas.client.zookeeper.interface import ConnectionLost, ZooKeeper
from barnabas.protocol.messages import create_delegation_token as creating
from barnabas.protocol.messages import describe_delegation_token as describing
from barnabas.protocol.messages import expire_delegation_token as expiring
from barnabas.protocol.messages import renew_delegation_token as renewing
from barnabas.protocol.scram import (
    MECHANISMS,
    NONCE_BYTES,
    SHA_256,
    SHA_512,
    ClientExchange,
    ScramMechanism,
    salted_password,
)
from barnabas.protocol.zookeeper import token_znodes
from barnabas.protocol.zookeeper.token_znodes import TokenRecord
from tests.handlers.peer import SomePeer, call, over_the_wire
from tests.sim.simulated_zookeeper import SimEnsemble

KEY = "Canary.Secret"
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


class WallClock:
    now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


def logged_in(name: str = ALICE, *, by_token: bool = False) -> SomePeer:
    sasl: Any = SimpleNamespace(is_by_token=by_token)
    return SomePeer(principal=name, sasl=sasl)


@dataclass
class Node:
    """What a node has of tokens, and its session."""

    session: Any
    tokens: DelegationTokens
    handler: DelegationTokensHandler

    async def create(self, peer: SomePeer | None = None, version: int = 3, **words: Any) -> Any:
        request = creating.CreateDelegationTokenRequest(
            **{
                "owner_principal_type": None,
                "owner_principal_name": None,
                "renewers": [],
                "max_lifetime_ms": -1,
                **words,
            }
        )
        answer = await self.handler.create(call(request, version, peer=peer or logged_in()))
        return over_the_wire(answer, version)

    async def renew(self, hmac: bytes, period_ms: int = -1, peer: SomePeer | None = None) -> Any:
        request = renewing.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = await self.handler.renew(call(request, 2, peer=peer or logged_in()))
        return answer.error_code, answer.expiry_timestamp_ms

    async def expire(self, hmac: bytes, period_ms: int = -1, peer: SomePeer | None = None) -> Any:
        request = expiring.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await self.handler.expire(call(request, 2, peer=peer or logged_in()))
        return answer.error_code, answer.expiry_timestamp_ms

    async def describe(self, *owners: str, peer: SomePeer | None = None, every: bool = True) -> Any:
        named = [
            describing.Owner(principal_type=kind, principal_name=name)
            for kind, _, name in (owner.partition(":") for owner in owners)
        ]
        wanted = None if every and not owners else named
        request = describing.DescribeDelegationTokenRequest(owners=wanted)
        answer = await self.handler.describe(call(request, 3, peer=peer or logged_in()))
        return over_the_wire(answer, 3)

    async def sees(self, *owners: str, peer: SomePeer) -> list[str]:
        answer = await self.describe(*owners, peer=peer)
        assert answer.error_code == 0
        return [token.token_id for token in answer.tokens]

    async def log_in(
        self, token_id: str, password: str, mechanism: ScramMechanism = SHA_512
    ) -> Outcome:
        """A whole exchange; raises AuthenticationFailed."""
        exchange = ScramExchange(mechanism, lambda *_: (), b"decoys", self.tokens.cache)
        client = ClientExchange(
            mechanism, token_id, secrets.token_bytes(NONCE_BYTES), {"tokenauth": "true"}
        )
        salting = client.salting((await outcome(exchange, client.first())).token)
        salted = salted_password(mechanism, password, *salting)
        done = await outcome(exchange, client.final(salted))
        client.verify(done.token)
        return done


async def outcome(exchange: ScramExchange, token: bytes) -> Outcome:
    found = exchange.evaluate(token)
    return found if isinstance(found, Outcome) else await found


@dataclass
class Two:
    ensemble: SimEnsemble
    clock: WallClock
    nodes: list[Node]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def first(self) -> Node:
        return self.nodes[0]

    @property
    def second(self) -> Node:
        return self.nodes[1]


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    ensemble, clock = SimEnsemble(asyncio.get_running_loop()), WallClock()
    made = Two(ensemble, clock, [])
    for _ in range(2):
        session: ZooKeeper = ensemble.connect()
        tokens = DelegationTokens(DelegationTokenSettings(secret_key=KEY), session, clock)
        await tokens.load()
        made.tasks.append(asyncio.create_task(tokens._changes.run()))
        made.nodes.append(Node(session, tokens, DelegationTokensHandler(tokens, None)))
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.wait(made.tasks)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


def password_of(answer: Any) -> str:
    return base64.b64encode(answer.hmac).decode()


async def test_a_token_stands_in_zookeeper_as_kafka_writes_it_and_without_its_secret(
    two: Two,
) -> None:
    renewers = [creating.Renewer(principal_type="User", principal_name="b o*b")]
    made = await two.first.create(renewers=renewers)
    assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "alice")
    assert made.token_requester_principal_name == "alice"
    assert made.issue_timestamp_ms == START_MS
    assert made.expiry_timestamp_ms == START_MS + DAY_MS
    assert made.max_timestamp_ms == START_MS + 7 * DAY_MS
    assert len(made.token_id) == 22
    assert len(made.hmac) == 64
    data, _ = await two.first.session.get(token_znodes.token_path(made.token_id))
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Ab%20o%2Ab"],
        "issueTimestamp": START_MS,
        "maxTimestamp": START_MS + 7 * DAY_MS,
        "expiryTimestamp": START_MS + DAY_MS,
        "tokenId": made.token_id,
    }
    (note,) = await two.first.session.children(token_znodes.CHANGES)
    assert (await two.first.session.get(f"{token_znodes.CHANGES}/{note}"))[0] == (
        made.token_id.encode()
    )


def test_bytes_and_secrets_are_those_of_kafka() -> None:
    """What Kafka 3.9.1 wrote of the same token (DelegationTokenInfoZNode, createHmac)."""
    text = (
        '{"issueTimestamp":1700000000000,"renewers":["User%3Abob"],"tokenRequester":"User%3Acarol",'
        '"tokenId":"WyNEAmjHRk-GFL3zqmNlEQ","owner":"User%3Aa%20b%2A",'
        '"expiryTimestamp":1700000000001,"maxTimestamp":1700000000002,"version":3}'
    )
    record = TokenRecord(
        token_id="WyNEAmjHRk-GFL3zqmNlEQ",
        owner="User:a b*",
        requester=CAROL,
        renewers=(BOB,),
        issue_ms=1700000000000,
        max_ms=1700000000002,
        expiry_ms=1700000000001,
    )
    assert record.to_json().decode() == text
    assert TokenRecord.from_json(record.token_id, text.encode()) == record
    cache = DelegationTokens(
        DelegationTokenSettings(secret_key="secret"),
        SimpleNamespace(on_state=[]),
        WallClock(),
    ).cache
    assert base64.b64encode(cache.made_of(record).hmac) == (
        b"eMqEFHra9vlaVbFvlSS7MYkc5Scse/ejz2VZJ8KEOTY0fMb7cBXJD14dWHSVVFFTYsaQ+iJuQ/cMhg9T1fZqCA=="
    )


def test_tokens_of_older_kafka_belong_to_their_requester_and_nonsense_to_nobody() -> None:
    fields = {
        "version": 1,
        "owner": "User%3Aalice",
        "renewers": [],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "t",
    }
    assert TokenRecord.from_json("t", json.dumps(fields).encode()).requester == ALICE
    for change in (
        {"version": 4},
        {"version": 3},
        {"owner": "alice"},
        {"owner": "User:alice"},
        {"renewers": [7]},
        {"tokenId": "another"},
        {"expiryTimestamp": None},
    ):
        with pytest.raises(ValueError, match=r"."):
            TokenRecord.from_json("t", json.dumps({**fields, **change}).encode())


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda one: one.name)
async def test_whoever_has_a_token_logs_in_on_every_node_as_its_owner(
    two: Two, mechanism: ScramMechanism
) -> None:
    made = await two.first.create(logged_in(CAROL))
    await until(lambda: two.second.tokens.cache.get(made.token_id))
    for node in two.nodes:
        for _ in range(2):
            done = await node.log_in(made.token_id, password_of(made), mechanism)
            assert (done.name, done.is_by_token, done.lifetime_ms) == ("carol", True, DAY_MS)


async def test_logins_that_come_at_once_derive_a_token_once(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = []
    real = two.first.tokens.cache._derive

    def derive(token: Any) -> Any:
        derived.append(token)
        return real(token)

    monkeypatch.setattr(two.first.tokens.cache, "_derive", derive)
    made = await two.first.create()
    logins = [two.first.log_in(made.token_id, password_of(made)) for _ in range(5)]
    assert {done.name for done in await asyncio.gather(*logins)} == {"alice"}
    assert len(derived) == 1


async def test_a_wrong_secret_an_unknown_id_and_a_user_of_that_name_fail_alike(two: Two) -> None:
    made = await two.first.create()
    for token_id, password in (
        (made.token_id, "guess"),
        ("WyNEAmjHRk-GFL3zqmNlEQ", password_of(made)),
        ("alice", password_of(made)),
        ("", ""),
    ):
        with pytest.raises(AuthenticationFailed) as failed:
            await two.first.log_in(token_id, password)
        assert failed.value.message == ""


async def test_a_token_lets_nobody_in_that_has_ended_but_is_not_removed_yet(two: Two) -> None:
    """S37, S101: by the wall clock."""
    made = await two.first.create()
    await two.first.log_in(made.token_id, password_of(made))
    two.clock.now_ms = made.expiry_timestamp_ms + 1
    with pytest.raises(AuthenticationFailed):
        await two.first.log_in(made.token_id, password_of(made))


async def test_a_token_of_no_user_lets_nobody_in(two: Two) -> None:
    """Its owner's name alone would be that of a user."""
    record = TokenRecord(
        token_id="t",
        owner="Group:alice",
        requester=ALICE,
        issue_ms=START_MS,
        max_ms=START_MS + DAY_MS,
        expiry_ms=START_MS + DAY_MS,
    )
    await two.first.session.create(token_znodes.token_path("t"), record.to_json())
    await two.first.tokens.load()
    password = base64.b64encode(two.first.tokens.cache.made_of(record).hmac).decode()
    with pytest.raises(AuthenticationFailed):
        await two.first.log_in("t", password)
    kind: dict[str, Any] = {"owner_principal_type": "Group", "owner_principal_name": "alice"}
    assert (await two.first.create(**kind)).error_code == 67


def test_no_token_has_an_id_that_a_command_takes_for_an_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = iter([uuid.UUID(bytes=b"\xf8" + bytes(15)), uuid.UUID(bytes=b"\xf4" + bytes(15))])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    assert delegation_tokens._new_id() == "9" + "A" * 21


async def test_a_token_is_renewed_up_to_its_end_by_owner_and_renewers(two: Two) -> None:
    renewers = [creating.Renewer(principal_type="User", principal_name="bob")]
    made = await two.first.create(renewers=renewers, max_lifetime_ms=3 * DAY_MS)
    two.clock.now_ms += DAY_MS // 2
    assert await two.second.renew(made.hmac) == (0, START_MS + 3 * DAY_MS // 2)
    assert await two.first.renew(made.hmac, 5, logged_in(BOB)) == (0, two.clock.now_ms + 5)
    assert await two.first.renew(made.hmac, 2**63 - 1) == (0, made.max_timestamp_ms)
    assert await two.first.renew(made.hmac, peer=logged_in(CAROL)) == (63, -1)
    assert await two.first.renew(b"unknown") == (62, -1)
    assert await two.first.renew(b"") == (62, -1)
    two.clock.now_ms = made.max_timestamp_ms + 1
    assert await two.first.renew(made.hmac) == (66, -1)


async def test_a_requester_who_is_neither_owner_nor_renewer_may_not_renew(two: Two) -> None:
    """As in Kafka: it sees the token, and no more."""
    for_bob: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    made = await two.first.create(**for_bob)
    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
    assert await two.first.renew(made.hmac) == (63, -1)
    assert await two.first.sees(peer=logged_in(ALICE)) == [made.token_id]
    assert (await two.first.log_in(made.token_id, password_of(made))).name == "bob"


async def test_a_token_that_is_ended_is_gone_on_every_node(two: Two) -> None:
    made = await two.first.create()
    await until(lambda: two.second.tokens.cache.get(made.token_id))
    assert await two.second.expire(made.hmac, DAY_MS // 4) == (0, START_MS + DAY_MS // 4)
    assert await two.second.expire(made.hmac, peer=logged_in(BOB)) == (63, -1)
    two.clock.now_ms += DAY_MS
    assert await two.second.expire(made.hmac, 5) == (66, -1)
    assert await two.second.expire(made.hmac) == (0, two.clock.now_ms)
    await until(lambda: two.first.tokens.cache.get(made.token_id) is None)
    assert await two.first.session.children(token_znodes.TOKENS) == []
    assert await two.first.expire(made.hmac) == (62, -1)


async def test_a_token_that_another_node_just_ended_does_not_come_back_by_being_renewed(
    two: Two,
) -> None:
    made = await two.first.create()
    await until(lambda: two.second.tokens.cache.get(made.token_id))
    await two.first.session.delete(token_znodes.token_path(made.token_id))
    assert await two.second.renew(made.hmac) == (62, -1)
    assert two.second.tokens.cache.get(made.token_id) is None
    assert await two.first.session.children(token_znodes.TOKENS) == []


async def test_a_token_is_renewed_at_another_node_that_has_not_heard_of_it_yet(two: Two) -> None:
    for task in two.tasks:
        task.cancel()
    made = await two.first.create()
    assert two.second.tokens.cache.get(made.token_id) is None
    assert (await two.second.renew(made.hmac))[0] == 0


async def test_two_who_renew_at_once_both_succeed(two: Two) -> None:
    made = await two.first.create()
    await until(lambda: two.second.tokens.cache.get(made.token_id))
    results = await asyncio.gather(
        *(node.renew(made.hmac, 1000 + place) for place, node in enumerate(two.nodes * 3))
    )
    assert [code for code, _ in results] == [0] * 6


async def test_the_controller_removes_what_has_ended_but_nothing_that_was_renewed(
    two: Two,
) -> None:
    ended = await two.first.create()
    renewed = await two.first.create()
    for task in two.tasks:
        task.cancel()  # what the second node does now, the first does not hear of
    await two.second.tokens.load()
    two.clock.now_ms += DAY_MS - 1
    await two.second.renew(renewed.hmac)
    two.clock.now_ms += 2
    await two.first.tokens.sweep()
    assert await two.first.session.children(token_znodes.TOKENS) == [renewed.token_id]
    known = two.first.tokens.cache.get(renewed.token_id)
    assert known is not None
    assert not known.record.has_ended(two.clock.now_ms)
    assert two.first.tokens.cache.get(ended.token_id) is None


async def test_old_notes_are_deleted_and_nonsense_among_them_is_ignored(two: Two) -> None:
    for name, data in (("token_change_", b"\xff\n/"), ("other_", b"x"), ("token_change_", b"a/b")):
        path = f"{token_znodes.CHANGES}/{name}"
        await two.first.session.create(path, data, sequence=True)
    made = await two.first.create()
    await until(lambda: two.second.tokens.cache.get(made.token_id))
    two.clock.now_ms += 10 * DAY_MS
    await two.first.tokens.catch_up()
    left = await two.first.session.children(token_znodes.CHANGES)
    assert [name for name in left if name.startswith("token_change_")] == []


async def test_a_token_that_cannot_be_read_lets_nobody_in(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    made = await two.first.create()
    await two.first.session.set(token_znodes.token_path(made.token_id), b"{", -1)
    await two.first.tokens.load()
    with pytest.raises(AuthenticationFailed):
        await two.first.log_in(made.token_id, password_of(made))
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize(
    "peer",
    [SomePeer(), logged_in(by_token=True), SomePeer(sasl=SimpleNamespace(is_by_token=True))],  # type: ignore[arg-type]
)
async def test_who_logged_in_by_a_token_or_not_at_all_may_do_nothing_of_it(
    two: Two, peer: SomePeer
) -> None:
    """64, before anything else is judged."""
    made = await two.first.create()
    refused = await two.first.create(peer, max_lifetime_ms=5)
    assert (refused.error_code, refused.token_id, refused.hmac) == (64, "", b"")
    assert refused.expiry_timestamp_ms == -1
    assert await two.first.renew(made.hmac, peer=peer) == (64, -1)
    assert await two.first.expire(made.hmac, peer=peer) == (64, -1)
    described = await two.first.describe(peer=peer)
    assert (described.error_code, described.tokens) == (64, [])


async def test_who_shows_a_certificate_has_logged_in(two: Two) -> None:
    assert (await two.first.create(SomePeer(principal="User:CN=duke"))).error_code == 0


async def test_without_a_secret_there_are_no_tokens() -> None:
    """61, but after 64 and 67."""
    node = Node(None, None, DelegationTokensHandler(None, None))  # type: ignore[arg-type]
    assert (await node.create()).error_code == 61
    assert (await node.create(SomePeer())).error_code == 64
    group = [creating.Renewer(principal_type="Group", principal_name="g")]
    assert (await node.create(renewers=group)).error_code == 67
    assert await node.renew(b"x") == (61, -1)
    assert await node.expire(b"x") == (61, -1)
    assert (await node.describe()).error_code == 61


async def test_renewers_are_users_with_a_name(two: Two) -> None:
    for kind, name, code in (("Group", "g", 67), ("", "g", 67), ("User", "", 42)):
        renewers = [creating.Renewer(principal_type=kind, principal_name=name)]
        assert (await two.first.create(renewers=renewers)).error_code == code


@pytest.mark.parametrize(
    "names", [[f"r{number}" for number in range(30_000)], ["r" * 10_000] * 7, ["é" * 5_000] * 3]
)
async def test_more_renewers_than_nodes_read_at_once_are_refused(
    two: Two, names: list[str]
) -> None:
    """All nodes read every token: what 30,000 renewers cost is told to none of them."""
    renewers = [creating.Renewer(principal_type="User", principal_name=name) for name in names]
    assert (await two.first.create(renewers=renewers)).error_code == 42
    assert await two.first.session.children(token_znodes.TOKENS) == []


def test_a_token_too_long_to_be_read_at_once_is_none() -> None:
    record = TokenRecord(
        token_id="t",
        owner=ALICE,
        requester=ALICE,
        renewers=("User:bob",) * 6_000,
        issue_ms=0,
        max_ms=1,
        expiry_ms=1,
    )
    with pytest.raises(ValueError, match="longer than 65536 bytes"):
        TokenRecord.from_json("t", record.to_json())


async def test_a_lifetime_of_nothing_is_the_longest_and_no_token_lives_longer(two: Two) -> None:
    for asked_ms in (0, -1, -(2**63), 2**63 - 1):
        made = await two.first.create(max_lifetime_ms=asked_ms)
        assert made.max_timestamp_ms == START_MS + 7 * DAY_MS
    made = await two.first.create(max_lifetime_ms=5)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == START_MS + 5


async def test_versions_before_owners_were_told_make_tokens_of_their_own(two: Two) -> None:
    for version in range(3):
        made = await two.first.create(version=version)
        assert (made.error_code, made.principal_name) == (0, "alice")


async def test_all_tokens_or_those_of_some_owners_are_described(two: Two) -> None:
    """Without an authorizer everybody sees all."""
    own = (await two.first.create()).token_id
    two.clock.now_ms += 1
    renewers = [creating.Renewer(principal_type="User", principal_name="bob")]
    others = (await two.first.create(logged_in(CAROL), renewers=renewers)).token_id
    assert await two.second.sees(peer=logged_in()) == [own, others]
    assert await two.second.sees(CAROL, peer=logged_in()) == [others]
    assert await two.second.sees(BOB, ALICE, peer=logged_in()) == [own, others]
    assert await two.second.sees("User:nobody", peer=logged_in()) == []
    assert (await two.second.describe(every=False)).tokens == []
    (told,) = (await two.second.describe(CAROL)).tokens
    assert (told.principal_name, len(told.hmac), told.renewers[0].principal_name) == (
        "carol",
        64,
        "bob",
    )


async def test_zookeeper_that_does_not_answer_is_told_and_tokens_still_let_in(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await two.first.create()

    async def lost(*_: Any, **__: Any) -> None:
        raise ConnectionLost("gone")

    for name in ("create", "set", "get", "children", "delete"):
        monkeypatch.setattr(two.first.session, name, lost)
    assert (await two.first.create()).error_code == 7
    assert await two.first.renew(made.hmac) == (7, -1)
    assert await two.first.expire(made.hmac) == (7, -1)
    assert (await two.first.describe()).error_code == 7
    assert (await two.first.log_in(made.token_id, password_of(made), SHA_256)).name == "alice"


async def test_no_secret_is_in_logs_or_shown(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    """S91."""
    caplog.set_level("DEBUG")
    made = await two.first.create()
    await two.first.log_in(made.token_id, password_of(made))
    token = two.first.tokens.cache.get(made.token_id)
    settings = DelegationTokenSettings(secret_key=KEY, master_key=KEY)
    shown = caplog.text + repr(token) + repr(settings) + repr(two.first.tokens.cache)
    for canary in (KEY, password_of(made), made.hmac.hex(), repr(made.hmac)[2:20]):
        assert canary not in shown


def test_the_former_name_of_the_secret_counts_where_the_new_one_is_not_set() -> None:
    assert DelegationTokenSettings(master_key="old").secret == b"old"
    assert DelegationTokenSettings(master_key="old", secret_key="new").secret == b"new"
    assert DelegationTokenSettings().secret == b""
