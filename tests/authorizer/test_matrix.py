"""Who may ask what: the matrix of docs/spec/security.md §3 (S39 to S56, S80, S81, S97, S98).

Each API is asked of a whole node with no entry, each operation, All, a denial, a prefix, ``*``,
another host, and as a super user; what it must say comes from the plainest model of a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from barnabas.broker.handlers import authorization
from barnabas.broker.handlers.call import Handler
from barnabas.broker.handlers.guards import Right
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    EVERYBODY,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.protocol.api import ApiKey, spec_of
from tests.authorizer import acl_model as model
from tests.authorizer.asked_apis import ASKED as PLAIN
from tests.authorizer.asked_apis import ELSEWHERE, ID, TOPIC, Asked
from tests.authorizer.asked_more import MORE
from tests.authorizer.guarded_node import (
    ALICE,
    ROOT,
    GuardedNode,
    allow,
    denials,
    everything,
    guarded_node,
)
from tests.handlers.peer import SomePeer

HOST = "127.0.0.1"
OPERATIONS = [one for one in Operation if one is not Operation.ANY]

ASKED = (*PLAIN, *MORE)

Running = tuple[asyncio.Runner, GuardedNode]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with guarded_node() as found:
        yield found


def name_of(kind: ResourceType, asked: Asked) -> str:
    return {
        ResourceType.TOPIC: asked.topic,
        ResourceType.GROUP: asked.group,
        ResourceType.TRANSACTIONAL_ID: ID,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }[kind]


def cases(kind: ResourceType, name: str) -> dict[str, Sequence[AclBinding]]:
    """What may stand there about one type of resource."""
    found: dict[str, Sequence[AclBinding]] = {"no entry": []}
    for one in OPERATIONS:
        found[one.word] = [allow(kind, name, one)]
        found[f"all but {one.word}"] = [
            allow(kind, name, Operation.ALL),
            allow(kind, name, one, permission=Permission.DENY),
        ]
    found["another host"] = [allow(kind, name, Operation.ALL, host="10.9.9.9")]
    found["another user"] = [allow(kind, name, Operation.ALL, principal="User:bob")]
    found["everybody"] = [allow(kind, name, Operation.ALL, principal=EVERYBODY)]
    found["another name"] = [allow(kind, f"{name}x", Operation.ALL)]
    if kind is not ResourceType.CLUSTER:
        found["every name"] = [allow(kind, "*", Operation.ALL)]
        prefix = name[: len(name) - 1] or name
        found["a prefix"] = [allow(kind, prefix, Operation.ALL, pattern_type=PatternType.PREFIXED)]
        found["a denied prefix"] = [
            allow(kind, name, Operation.ALL),
            allow(
                *(kind, prefix, Operation.ALL),
                permission=Permission.DENY,
                pattern_type=PatternType.PREFIXED,
            ),
        ]
    return found


def may(entries: Sequence[AclBinding], right: Right, asked: Asked) -> bool:
    name = name_of(right.resource_type, asked)
    return model.allowed(entries, ALICE, HOST, right.operation, right.resource_type, name)


@pytest.mark.parametrize("asked", ASKED, ids=[one.label for one in ASKED])
def test_each_api_is_denied_as_the_matrix_has_it(running: Running, asked: Asked) -> None:
    runner, node = running

    async def ask_all() -> list[str]:
        wrong = []
        kinds = list(dict.fromkeys(right.resource_type for right in asked.needs))
        for kind in kinds:
            for label, some in cases(kind, name_of(kind, asked)).items():
                entries = [*everything(without=[kind]), *some]
                node.entries(entries)
                peer = SomePeer(principal=ALICE, host=HOST, is_internal=asked.is_internal)
                answer = await node.ask(asked.request(asked.topic), asked.version, peer)
                expected = asked.expected(lambda right, held=entries: may(held, right, asked))  # type: ignore[misc]
                if denials(answer) != expected:
                    wrong.append(f"{kind.word}, {label}: {denials(answer)}, not {expected}")
        return wrong

    assert not runner.run(ask_all())


@pytest.mark.parametrize("asked", ASKED, ids=[one.label for one in ASKED])
def test_a_super_user_may_do_everything(running: Running, asked: Asked) -> None:
    """S41; but nobody who is no node poses as a follower, or sends half a transaction."""
    runner, node = running
    node.entries(
        allow(kind, "*", Operation.ALL, principal=EVERYBODY, permission=Permission.DENY)
        for kind in ResourceType
        if kind is not ResourceType.ANY
    )
    peer = SomePeer(principal=ROOT, host=HOST, is_internal=asked.is_internal)
    answer = runner.run(node.ask(asked.request(asked.topic), asked.version, peer))
    assert denials(answer) == asked.expected(lambda right: True)


def test_every_api_of_the_matrix_is_asked() -> None:
    """A row that nobody asks about would be no test of its guard."""
    tested = {int(spec_of(type(one.request(one.topic))).key) for one in ASKED}
    served_by_others = {
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,  # of these four: test_token_rights.py
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
    assert authorization.MATRIX.keys() - tested == ELSEWHERE | served_by_others


def test_a_handler_without_a_row_ends_the_start() -> None:
    """S103."""
    with pytest.raises(LookupError, match="no row"):
        authorization.guarded({ApiKey.PRODUCE: _never, 999: _never}, None)


def test_without_an_authorizer_nothing_stands_before_a_handler() -> None:
    handlers: dict[int, Handler] = {ApiKey.PRODUCE: _never}
    assert authorization.guarded(handlers, None) is handlers


def _never(_: Any) -> Any:
    raise AssertionError


TOPIC_ASKED = [one for one in ASKED if one.request("a") != one.request("b")]


@pytest.mark.parametrize("asked", TOPIC_ASKED, ids=[one.label for one in TOPIC_ASKED])
def test_a_denial_does_not_tell_whether_a_topic_exists(running: Running, asked: Asked) -> None:
    """S54: topic ``t`` is there, topic ``u`` is not."""
    runner, node = running
    node.entries(everything(without=[ResourceType.TOPIC, ResourceType.CLUSTER]))
    answers = [
        repr(
            runner.run(
                node.ask(
                    asked.request(name),
                    asked.version,
                    SomePeer(principal=ALICE, is_internal=asked.is_internal),
                )
            )
        )
        for name in (TOPIC, "u")
    ]
    assert answers[0].replace(f"'{TOPIC}'", "'?'") == answers[1].replace("'u'", "'?'")
