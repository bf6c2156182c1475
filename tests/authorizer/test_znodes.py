"""Entries and notes in ZooKeeper, byte for byte Kafka's: docs/spec/security.md §3 (S46, S47)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.acl import (
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import acl_znodes as znodes
from tests.authorizer import acl_model as model

ALICE_READS = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
GOLDEN = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
    b'"operation":"Read","host":"*"}]}'
)
"""The shape that docs/spec/security.md §3 gives; Kafka does not care for the order of keys."""


def test_entries_read_and_are_written_as_kafka_has_them() -> None:
    assert znodes.acls_to_json([ALICE_READS]) == GOLDEN
    assert znodes.acls_from_json(GOLDEN) == {ALICE_READS}


@given(st.frozensets(model.acls))
def test_entries_survive_a_round_trip(acls: frozenset[Acl]) -> None:
    assert znodes.acls_from_json(znodes.acls_to_json(acls)) == acls


@pytest.mark.parametrize("text", ["DescribeConfigs", "describeconfigs", "DESCRIBE_CONFIGS"])
def test_words_are_read_in_any_case(text: str) -> None:
    """S46."""
    data = GOLDEN.replace(b"Read", text.encode()).replace(b"Allow", b"ALLOW")
    (acl,) = znodes.acls_from_json(data)
    assert acl.operation is Operation.DESCRIBE_CONFIGS
    assert acl.permission is Permission.ALLOW


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"acls":[]}',
        b'{"version":2,"acls":[]}',
        GOLDEN.replace(b"Read", b"Fly"),
        GOLDEN.replace(b"Read", b"Any"),
        GOLDEN.replace(b"Allow", b"Any"),
        GOLDEN.replace(b"User:alice", b"alice"),
        GOLDEN.replace(b'"*"', b"7"),
    ],
)
def test_what_is_no_list_of_entries_is_named(data: bytes) -> None:
    """S46: the reader denies the resource then."""
    with pytest.raises(ValueError, match=r"."):
        znodes.acls_from_json(data)


PLACES = {
    ResourcePattern(ResourceType.TOPIC, "foo"): "/kafka-acl/Topic/foo",
    ResourcePattern(ResourceType.TOPIC, "*"): "/kafka-acl/Topic/*",
    ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"): "/kafka-acl/Cluster/kafka-cluster",
    ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t"): "/kafka-acl/TransactionalId/t",
    ResourcePattern(ResourceType.DELEGATION_TOKEN, "d"): "/kafka-acl/DelegationToken/d",
    ResourcePattern(ResourceType.USER, "User:a"): "/kafka-acl/User/User:a",
    ResourcePattern(
        ResourceType.GROUP, "g", PatternType.PREFIXED
    ): "/kafka-acl-extended/prefixed/Group/g",
}


@pytest.mark.parametrize(("pattern", "path"), PLACES.items())
def test_the_place_of_each_pattern(pattern: ResourcePattern, path: str) -> None:
    """S46: prefixed in lower case, whatever documents say."""
    assert znodes.resource_path(pattern) == path


@pytest.mark.parametrize("name", ["a/b", "", ".", "..", "a\0b", "a\nb"])
def test_a_name_that_would_be_another_place_is_refused(name: str) -> None:
    """S46, S51: 42."""
    with pytest.raises(Refused) as refusal:
        znodes.resource_path(ResourcePattern(ResourceType.GROUP, name))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_note_about_a_literal_is_text_with_colons() -> None:
    """S47: upper case with underscores, split at the first colon."""
    pattern = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b")
    assert znodes.change_to_json(pattern) == b"TRANSACTIONAL_ID:a:b"
    assert znodes.change_from_json(PatternType.LITERAL, b"TRANSACTIONAL_ID:a:b") == pattern
    older = znodes.change_from_json(PatternType.LITERAL, b"TransactionalId:a:b")
    assert older == pattern


def test_a_note_about_a_prefix_is_json() -> None:
    """S47."""
    pattern = ResourcePattern(ResourceType.TOPIC, "foo", PatternType.PREFIXED)
    data = znodes.change_to_json(pattern)
    assert json.loads(data) == {
        "version": 1,
        "resourceType": "TOPIC",
        "name": "foo",
        "patternType": "PREFIXED",
    }
    assert znodes.change_from_json(PatternType.PREFIXED, data) == pattern


@pytest.mark.parametrize(
    ("pattern_type", "data"),
    [
        (PatternType.LITERAL, b"foo"),
        (PatternType.LITERAL, b"Any:foo"),
        (PatternType.LITERAL, b"Nothing:foo"),
        (PatternType.LITERAL, b"\xff\xfe"),
        (PatternType.PREFIXED, b"TOPIC:foo"),
        (
            PatternType.PREFIXED,
            b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"LITERAL"}',
        ),
    ],
)
def test_what_is_no_note_is_named(pattern_type: PatternType, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        znodes.change_from_json(pattern_type, data)
