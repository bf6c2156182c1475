"""What is typed as entries and filters, as kafka-acls has it: docs/spec/security.md §9 (S78)."""

from __future__ import annotations

import argparse

import pytest

from barnabas.console.acls import entries
from barnabas.console.command_line.failure import Misuse
from barnabas.console.commands import acls
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE = "User:alice"
TO_ALICE = ("--allow-principal", ALICE)


def typed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    acls.add_arguments(parser)
    return parser.parse_args(words)


def added(*words: str) -> set[tuple[str, str, str]]:
    """Type, name and operation of each entry, all of which allow Alice from anywhere."""
    found = entries.bindings(typed("add", *words))
    assert {one.acl._replace(operation=Operation.ALL) for one in found} == {
        Acl(ALICE, "*", Operation.ALL, Permission.ALLOW)
    }
    return {
        (one.pattern.resource_type.word, one.pattern.name, one.acl.operation.word) for one in found
    }


def test_a_producer_needs_write_describe_and_create() -> None:
    """S78."""
    assert added("--producer", *TO_ALICE, "--topic", "t") == {
        ("Topic", "t", "Write"),
        ("Topic", "t", "Describe"),
        ("Topic", "t", "Create"),
    }
    whole = added(
        *("--producer", "--idempotent", *TO_ALICE, "--topic", "t", "--transactional-id", "x")
    )
    assert whole >= {
        ("TransactionalId", "x", "Write"),
        ("TransactionalId", "x", "Describe"),
        ("Cluster", CLUSTER_NAME, "IdempotentWrite"),
    }


def test_a_consumer_needs_read_and_describe_and_its_group() -> None:
    """S78."""
    assert added("--consumer", *TO_ALICE, "--topic", "t", "--group", "g") == {
        ("Topic", "t", "Read"),
        ("Topic", "t", "Describe"),
        ("Group", "g", "Read"),
    }


def test_operations_are_typed_in_any_case_and_all_is_the_default() -> None:
    assert added(*TO_ALICE, "--topic", "t", "--operation", "describeconfigs") == {
        ("Topic", "t", "DescribeConfigs")
    }
    assert added(*TO_ALICE, "--kafka-cluster") == {("Cluster", CLUSTER_NAME, "All")}


def test_every_principal_from_every_host() -> None:
    found = entries.bindings(
        typed(
            *("add", "--topic", "t", "--resource-pattern-type", "prefixed", "--operation", "Read"),
            *("--allow-principal", "User:a", "--allow-principal", "User:b"),
            *("--allow-host", "10.0.0.1", "--allow-host", "::1"),
            *("--deny-principal", "User:c"),
        )
    )
    pattern = ResourcePattern(TOPIC, "t", PatternType.PREFIXED)
    assert found == [
        AclBinding(pattern, Acl(principal, host, Operation.READ, permission))
        for principal, host, permission in (
            ("User:a", "10.0.0.1", Permission.ALLOW),
            ("User:a", "::1", Permission.ALLOW),
            ("User:b", "10.0.0.1", Permission.ALLOW),
            ("User:b", "::1", Permission.ALLOW),
            ("User:c", "*", Permission.DENY),
        )
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--topic", "t"), "name whom it is about"),
        (TO_ALICE, "name a resource"),
        (("--topic", "t", "--deny-principal", ALICE, "--allow-host", "h"), "--allow-host goes"),
        (("--topic", "t", *TO_ALICE, "--deny-host", "h"), "--deny-host goes"),
        (("--topic", "t", *TO_ALICE, "--producer", "--operation", "Read"), "stand for operations"),
        (("--topic", "t", "--deny-principal", ALICE, "--consumer"), "stand for operations"),
        ((*TO_ALICE, "--group", "g", "--producer"), "need a --topic"),
        ((*TO_ALICE, "--topic", "t", "--consumer"), "needs a --group"),
        ((*TO_ALICE, "--topic", "t", "--idempotent"), "goes with --producer"),
    ],
)
def test_words_that_contradict_each_other_are_told(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Misuse, match=reason):
        entries.bindings(typed("add", *words))


@pytest.mark.parametrize(
    "words", [("--operation", "Fly"), ("--allow-principal", "alice"), ("--allow-principal", ":a")]
)
def test_what_is_no_operation_or_principal_is_told(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        typed("add", "--topic", "t", *words)
    assert "is no " in capsys.readouterr().err


def test_a_list_is_of_everything_or_of_what_is_named() -> None:
    assert entries.filters(typed("list")) == [AclFilter()]
    assert entries.filters(typed("list", "--topic", "t", "--principal", ALICE)) == [
        AclFilter(TOPIC, "t", PatternType.LITERAL, ALICE)
    ]
    match = entries.filters(typed("list", "--group", "g", "--resource-pattern-type", "match"))
    assert match == [AclFilter(GROUP, "g", PatternType.MATCH)]


def test_a_removal_is_of_single_entries_or_of_all_on_a_resource() -> None:
    assert entries.removals(typed("remove", "--topic", "t")) == [
        AclFilter(TOPIC, "t", PatternType.LITERAL)
    ]
    single = entries.removals(typed("remove", "--topic", "t", *TO_ALICE, "--operation", "Read"))
    assert single == [
        AclFilter(*(TOPIC, "t", PatternType.LITERAL, ALICE, "*", Operation.READ, Permission.ALLOW))
    ]
    with pytest.raises(Misuse, match="name a resource"):
        entries.removals(typed("remove"))
