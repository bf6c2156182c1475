"""DescribeAcls, CreateAcls and DeleteAcls: docs/spec/security.md §3 (S39, S50 to S52)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.handlers.acls import AclsHandler
from barnabas.protocol.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import create_acls, delete_acls, describe_acls
from tests.authorizer.guarded_node import ROOT, GuardedNode, guarded_node
from tests.handlers.peer import SomePeer, call

LITERAL, PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)
TOPIC, GROUP, CLUSTER = (
    int(ResourceType.TOPIC),
    int(ResourceType.GROUP),
    int(ResourceType.CLUSTER),
)
ANY = 1
ALLOW, DENY = int(Permission.ALLOW), int(Permission.DENY)
READ, WRITE = int(Operation.READ), int(Operation.WRITE)
SUPER = SomePeer(principal=ROOT)
Running = tuple[asyncio.Runner, GuardedNode]


@pytest.fixture
def running() -> Iterator[Running]:
    with guarded_node() as (runner, node):
        node.entries([])
        yield runner, node


def creation(name: str = "t", **other: Any) -> create_acls.Creation:
    fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **other,
    }
    return create_acls.Creation(**fields)


def create(running: Running, *creations: create_acls.Creation, version: int = 3) -> list[int]:
    runner, node = running
    request = create_acls.CreateAclsRequest(creations=list(creations))
    answer = runner.run(node.ask(request, version, SUPER))
    return [int(one.error_code) for one in answer.results]


def wanted(kind: int = ANY, name: str | None = None, pattern: int = ANY, **other: Any) -> Any:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **other,
    }


def describe(running: Running, version: int = 3, **asked: Any) -> Any:
    runner, node = running
    request = describe_acls.DescribeAclsRequest(**asked)
    return runner.run(node.ask(request, version, SUPER))


def names(answer: Any) -> set[tuple[str, int]]:
    assert answer.error_code == 0
    return {(one.resource_name, int(one.pattern_type)) for one in answer.resources}


def delete(running: Running, *filters: Any) -> Any:
    runner, node = running
    request = delete_acls.DeleteAclsRequest(filters=[delete_acls.Filter(**one) for one in filters])
    return runner.run(node.ask(request, 3, SUPER)).filter_results


def test_without_an_authorizer_there_are_no_entries() -> None:
    """S39: 54."""
    handlers = AclsHandler(None).handlers()
    asked = {
        ApiKey.DESCRIBE_ACLS: describe_acls.DescribeAclsRequest(**wanted()),
        ApiKey.CREATE_ACLS: create_acls.CreateAclsRequest(creations=[creation()]),
        ApiKey.DELETE_ACLS: delete_acls.DeleteAclsRequest(filters=[delete_acls.Filter(**wanted())]),
    }
    for key, request in asked.items():
        answer = handlers[key](call(request, 3))
        assert "54" in repr(answer), answer


WRONG = {
    "no name": creation(""),
    "another cluster": creation("mine", resource_type=CLUSTER),
    "a slash": creation("a/b"),
    "a line": creation("a\nb", resource_type=GROUP),
    "any type": creation(resource_type=ANY),
    "no type": creation(resource_type=0),
    "a type to come": creation(resource_type=9),
    "any pattern": creation(resource_pattern_type=ANY),
    "match": creation(resource_pattern_type=2),
    "an unknown pattern": creation(resource_pattern_type=77),
    "any operation": creation(operation=ANY),
    "an unknown operation": creation(operation=99),
    "any permission": creation(permission_type=ANY),
    "a principal without type": creation(principal="alice"),
    "a principal without name": creation(principal="User:"),
    "no host": creation(host=""),
}


def test_what_is_no_entry_is_refused_by_itself(running: Running) -> None:
    """S51: 42 each, and those beside them are made."""
    codes = create(running, creation("before"), *WRONG.values(), creation("behind"))
    assert codes == [0, *[42] * len(WRONG), 0]
    assert names(describe(running, **wanted())) == {("before", LITERAL), ("behind", LITERAL)}


def test_entries_are_made_once_however_often_they_are_asked_for(running: Running) -> None:
    """S51: existing 0; an operation that does not fit its resource is accepted."""
    odd = creation("g", resource_type=GROUP, operation=WRITE)
    assert create(running, creation(), creation(), odd) == [0, 0, 0]
    assert create(running, creation()) == [0]
    answer = describe(running, **wanted())
    assert sorted((one.resource_name, len(one.acls)) for one in answer.resources) == [
        ("g", 1),
        ("t", 1),
    ]


def test_filters_and_patterns(running: Running) -> None:
    """S50: Literal, Prefixed and Any compare names, Match finds what concerns a name."""
    assert not any(
        create(
            running,
            creation("abc"),
            creation("ab", resource_pattern_type=PREFIXED),
            creation("*"),
            creation("b"),
            creation("abc", resource_type=GROUP),
        )
    )
    found = {
        "literal": names(describe(running, **wanted(TOPIC, "abc", LITERAL))),
        "prefixed": names(describe(running, **wanted(TOPIC, "ab", PREFIXED))),
        "any": names(describe(running, **wanted(TOPIC, "ab", ANY))),
        "match": names(describe(running, **wanted(TOPIC, "abc", 2))),
        "all topics": names(describe(running, **wanted(TOPIC))),
        "version 0": names(describe(running, 0, **wanted(TOPIC))),
    }
    assert found == {
        "literal": {("abc", LITERAL)},
        "prefixed": {("ab", PREFIXED)},
        "any": {("ab", PREFIXED)},
        "match": {("abc", LITERAL), ("ab", PREFIXED), ("*", LITERAL)},
        "all topics": {("abc", LITERAL), ("ab", PREFIXED), ("*", LITERAL), ("b", LITERAL)},
        "version 0": {("abc", LITERAL), ("*", LITERAL), ("b", LITERAL)},
    }


@pytest.mark.parametrize(
    "other",
    [
        {"resource_type_filter": 0},
        {"pattern_type_filter": 0},
        {"operation": 0},
        {"permission_type": 9},
    ],
)
def test_a_filter_of_unknown_numbers_is_refused(running: Running, other: dict[str, int]) -> None:
    """S50: Kafka closes the connection."""
    assert describe(running, **{**wanted(), **other}).error_code == 42
    create(running, creation())
    (result,) = delete(running, {**wanted(), **other})
    assert (result.error_code, list(result.matching_acls)) == (42, [])
    assert names(describe(running, **wanted())) == {("t", LITERAL)}


def test_each_entry_is_removed_under_the_first_filter_that_means_it(running: Running) -> None:
    """S52."""
    create(
        running,
        creation("a"),
        creation("a", operation=WRITE),
        creation("b", principal="User:bob"),
        creation("b", permission_type=DENY),
    )
    first, second, third = delete(
        running,
        wanted(TOPIC, "a", LITERAL, operation=READ),
        wanted(principal_filter="User:alice"),
        wanted(TOPIC, "nothing", LITERAL),
    )
    told = [
        [(one.resource_name, one.operation, one.permission_type) for one in result.matching_acls]
        for result in (first, second, third)
    ]
    assert told == [
        [("a", READ, ALLOW)],
        [("a", WRITE, ALLOW), ("b", READ, DENY)],
        [],
    ]
    runner, node = running
    left = list(node.acls.cache.snapshot.bindings(AclFilter()))
    assert [one.acl.principal for one in left] == ["User:bob"]
    tree = node.cluster.ensemble.connect()
    paths = runner.run(_children(tree, "/kafka-acl/Topic"))
    assert paths == ["b"], "the last entry gone, the znode is gone"


async def _children(session: Any, path: str) -> list[str]:
    found: list[str] = await session.children(path)
    return sorted(found)


def test_an_entry_acts_before_its_creation_is_answered(running: Running) -> None:
    _, node = running
    alice = SomePeer(principal="User:alice")
    allows = node.acls.authorizer.allows
    assert not allows(alice, Operation.READ, ResourceType.TOPIC, "t")
    create(running, creation())
    assert allows(alice, Operation.READ, ResourceType.TOPIC, "t")
    delete(running, wanted(TOPIC, "t", LITERAL))
    assert not allows(alice, Operation.READ, ResourceType.TOPIC, "t")


def test_while_zookeeper_is_away_a_change_is_told_to_come_again(running: Running) -> None:
    """7, which clients retry; entries that are there go on to hold."""
    _, node = running
    create(running, creation())
    node.cluster.session.suspend()
    assert create(running, creation("u")) == [7]
    alice = SomePeer(principal="User:alice")
    assert node.acls.authorizer.allows(alice, Operation.READ, ResourceType.TOPIC, "t")
    node.cluster.session.resume()
