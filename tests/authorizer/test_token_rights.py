"""Who may make and see whose delegation tokens: docs/spec/security.md §2 (S37) and §3 (S40)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.authorizer.acl import AclSnapshot, ResourceAcls
from barnabas.broker.authorizer.acl_cache import AclCache
from barnabas.broker.authorizer.audit import Audit
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.handlers.delegation_tokens import DelegationTokensHandler
from barnabas.broker.handlers.guards import GuardContext
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.settings.delegation_token_settings import DelegationTokenSettings
from barnabas.protocol.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from barnabas.protocol.messages import create_delegation_token as creating
from barnabas.protocol.messages import describe_delegation_token as describing
from tests.authorizer.guarded_node import allow
from tests.handlers.peer import SomePeer, call
from tests.sim.simulated_zookeeper import SimEnsemble

USER, TOKEN = ResourceType.USER, ResourceType.DELEGATION_TOKEN
PREFIXED = PatternType.PREFIXED
SASL: Any = SimpleNamespace(is_by_token=False)


class Guarded:
    """The handler of a node with an authorizer; alice asks."""

    def __init__(self, tokens: DelegationTokens) -> None:
        self.tokens = tokens
        self._cache = AclCache()
        authorizer = Authorizer(self._cache, Audit(lambda: 0.0))
        context = GuardContext(authorizer, lambda: True, None)  # type: ignore[arg-type]
        self._handler = DelegationTokensHandler(tokens, context)

    def entries(self, bindings: Sequence[AclBinding]) -> None:
        self._cache.snapshot = AclSnapshot(
            {pattern: ResourceAcls([acl]) for pattern, acl in bindings}, super_users=["User:root"]
        )

    async def create(self, owner: str, principal: str = "User:alice") -> int:
        kind, _, name = owner.partition(":")
        request = creating.CreateDelegationTokenRequest(
            owner_principal_type=kind, owner_principal_name=name, renewers=[], max_lifetime_ms=-1
        )
        peer = SomePeer(principal=principal, sasl=SASL)
        code: int = (await self._handler.create(call(request, 3, peer=peer))).error_code
        return code

    async def sees(self, principal: str = "User:alice") -> set[str]:
        peer = SomePeer(principal=principal, sasl=SASL)
        request = describing.DescribeDelegationTokenRequest(owners=None)
        answer = await self._handler.describe(call(request, 3, peer=peer))
        assert answer.error_code == 0
        return {token.token_id for token in answer.tokens}


@pytest.fixture
async def guarded() -> Guarded:
    session = SimEnsemble(asyncio.get_running_loop()).connect()
    tokens = DelegationTokens(DelegationTokenSettings(secret_key="k"), session, lambda: 1_000)
    await tokens.load()
    return Guarded(tokens)


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], 65),
        ([allow(USER, "User:bob", Operation.CREATE_TOKENS)], 0),
        ([allow(USER, "User:bob", Operation.ALL)], 0),
        ([allow(USER, "*", Operation.CREATE_TOKENS)], 0),
        ([allow(USER, "User:b", Operation.CREATE_TOKENS, pattern_type=PREFIXED)], 0),
        ([allow(USER, "User:bob", Operation.DESCRIBE_TOKENS)], 65),
        ([allow(USER, "bob", Operation.CREATE_TOKENS)], 65),
        ([allow(USER, "User:bob", Operation.CREATE_TOKENS, principal="User:carol")], 65),
        ([allow(TOKEN, "*", Operation.ALL)], 65),
        (
            [
                allow(USER, "*", Operation.CREATE_TOKENS),
                allow(USER, "User:bob", Operation.ALL, permission=Permission.DENY),
            ],
            65,
        ),
    ],
)
async def test_tokens_of_others_are_made_by_who_may_create_tokens_of_that_user(
    guarded: Guarded, entries: list[AclBinding], code: int
) -> None:
    guarded.entries(entries)
    assert await guarded.create("User:bob") == code
    assert len(guarded.tokens.cache.tokens) == (code == 0)


async def test_everybody_makes_tokens_of_his_own_and_super_users_of_all(guarded: Guarded) -> None:
    guarded.entries([])
    assert await guarded.create("User:alice") == 0
    assert await guarded.create("User:bob", "User:root") == 0


async def test_who_may_not_make_a_token_of_another_type_is_told_so_first(guarded: Guarded) -> None:
    """65 before 67: what else is wrong is told to who is allowed."""
    guarded.entries([])
    assert await guarded.create("Group:bob") == 65
    guarded.entries([allow(USER, "*", Operation.ALL)])
    assert await guarded.create("Group:bob") == 67


@pytest.mark.parametrize("operation", [None, *Operation])
async def test_tokens_of_others_are_seen_by_who_may_describe_them_or_those_of_their_owner(
    guarded: Guarded, operation: Operation | None
) -> None:
    """As owner, requester and renewer without any entry."""
    token = await guarded.tokens.create("User:bob", "User:carol", ["User:dave"], -1)
    token_id = token.record.token_id
    for principal in ("User:bob", "User:carol", "User:dave", "User:root"):
        guarded.entries([])
        assert await guarded.sees(principal) == {token_id}
    by_id = [] if operation is None else [allow(TOKEN, token_id, operation)]
    guarded.entries(by_id)
    implied = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    is_seen = operation in (Operation.DESCRIBE, Operation.ALL, *implied)
    assert await guarded.sees() == ({token_id} if is_seen else set())
    guarded.entries([] if operation is None else [allow(USER, "User:bob", operation)])
    is_seen = operation in (Operation.DESCRIBE_TOKENS, Operation.ALL)
    assert await guarded.sees() == ({token_id} if is_seen else set())
