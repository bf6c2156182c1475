"""From the options of kafka-acls to entries and filters.

Source: docs/spec/security.md §9 (S78: what --producer and --consumer stand for); Kafka 3.9
AclCommand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.console.command_line.failure import Misuse
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)

OPTIONS: Final[Mapping[str, ResourceType]] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
"""Options that name resources, each as often as wanted."""
PRODUCER: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
OPERATIONS: Final = tuple(one for one in Operation if one is not Operation.ANY)


def add_resource_options(parser: argparse.ArgumentParser, *, is_filter: bool) -> None:
    """What the entries are about."""
    for name in OPTIONS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", dest=name, action="append", default=[], metavar="NAME",
            help="may be repeated; * for all" if name == "topic" else "may be repeated",
        )  # fmt: skip
    parser.add_argument(
        "--kafka-cluster", action="store_true", help="the cluster itself (kafka-acls: --cluster)"
    )
    kinds = [one.word.lower() for one in PatternType]
    parser.add_argument(
        "--resource-pattern-type", dest="pattern", type=str.lower, default="literal",
        choices=kinds if is_filter else ["literal", "prefixed"], metavar="KIND",
        help=f"literal (default), prefixed{', match or any' if is_filter else ''}",
    )  # fmt: skip


def add_entry_options(parser: argparse.ArgumentParser) -> None:
    """Who may, or may not, do what."""
    for word, meaning in (("allow", "who may"), ("deny", "who may not, whatever else is allowed")):
        parser.add_argument(
            f"--{word}-principal", action="append", default=[], type=_principal,
            metavar="User:NAME", help=f"{meaning}; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            f"--{word}-host", action="append", default=[], metavar="ADDRESS",
            help="from where (default: anywhere); may be repeated",
        )  # fmt: skip
    parser.add_argument(
        "--operation", dest="operations", action="append", default=[], type=_operation,
        metavar="WORD", help=f"may be repeated (default: All): "
        f"{', '.join(one.word for one in OPERATIONS)}",
    )  # fmt: skip
    parser.add_argument(
        "--producer", action="store_true",
        help="what a producer needs: Write, Describe and Create on topics; Write and Describe on "
        "transactional ids",
    )  # fmt: skip
    parser.add_argument(
        "--consumer", action="store_true",
        help="what a consumer needs: Read and Describe on topics, Read on groups",
    )  # fmt: skip
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer: IdempotentWrite on the cluster"
    )


def patterns(chosen: argparse.Namespace) -> list[ResourcePattern]:
    """The resources that were named; the cluster is always literal."""
    kind = PatternType.of_word(chosen.pattern)
    found = [
        ResourcePattern(resource_type, name, kind)
        for option, resource_type in OPTIONS.items()
        for name in getattr(chosen, option)
    ]
    if chosen.kafka_cluster:
        found.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def bindings(chosen: argparse.Namespace) -> list[AclBinding]:
    """The entries that were typed, each once; raises Misuse for words that make none."""
    resources = patterns(chosen)
    if not chosen.allow_principal and not chosen.deny_principal:
        raise Misuse("name whom it is about: --allow-principal or --deny-principal")
    if chosen.allow_host and not chosen.allow_principal:
        raise Misuse("--allow-host goes with --allow-principal")
    if chosen.deny_host and not chosen.deny_principal:
        raise Misuse("--deny-host goes with --deny-principal")
    is_role = chosen.producer or chosen.consumer
    if is_role and (chosen.operations or chosen.deny_principal):
        raise Misuse("--producer and --consumer stand for operations that are allowed")
    if chosen.idempotent and not chosen.producer:
        raise Misuse("--idempotent goes with --producer")
    types = {pattern.resource_type for pattern in resources}
    if is_role and ResourceType.TOPIC not in types:
        raise Misuse("--producer and --consumer need a --topic")
    if chosen.consumer and ResourceType.GROUP not in types:
        raise Misuse("--consumer needs a --group")
    if not resources:
        raise Misuse("name a resource: --topic, --group, --transactional-id, --kafka-cluster")
    found = [
        AclBinding(pattern, acl)
        for pattern, operation in _operations(chosen, resources)
        for acl in _acls(chosen, operation)
    ]
    return list(dict.fromkeys(found))


def _operations(
    chosen: argparse.Namespace, resources: list[ResourcePattern]
) -> Iterator[tuple[ResourcePattern, Operation]]:
    roles = [PRODUCER] * chosen.producer + [CONSUMER] * chosen.consumer
    for pattern in resources:
        for role in roles:
            for operation in role.get(pattern.resource_type, ()):
                yield pattern, operation
        if not roles:
            for operation in chosen.operations or [Operation.ALL]:
                yield pattern, operation
    if chosen.idempotent:
        cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
        yield cluster, Operation.IDEMPOTENT_WRITE


def _acls(chosen: argparse.Namespace, operation: Operation) -> Iterator[Acl]:
    for principals, hosts, permission in (
        (chosen.allow_principal, chosen.allow_host, Permission.ALLOW),
        (chosen.deny_principal, chosen.deny_host, Permission.DENY),
    ):
        for principal in principals:
            for host in hosts or [WILDCARD]:
                yield Acl(principal, host, operation, permission)


def filters(chosen: argparse.Namespace) -> list[AclFilter]:
    """What is to be listed: all, or the resources and principals that were named."""
    kind = PatternType.of_word(chosen.pattern)
    resources = [
        AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type)
        for pattern in patterns(chosen)
    ] or [AclFilter(pattern_type=PatternType.ANY if kind is PatternType.LITERAL else kind)]
    principals: list[str | None] = [*chosen.principal] or [None]
    return [
        wanted._replace(principal=principal) for wanted in resources for principal in principals
    ]


def removals(chosen: argparse.Namespace) -> list[AclFilter]:
    """What is to be removed: single entries, or all on the resources that were named."""
    if chosen.allow_principal or chosen.deny_principal:
        return [
            AclFilter(
                *pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission=acl.permission,
            )
            for pattern, acl in bindings(chosen)
        ]
    found = [AclFilter(*pattern) for pattern in patterns(chosen)]
    if not found:
        raise Misuse("name a resource: --topic, --group, --transactional-id, --kafka-cluster")
    return found


def _principal(text: str) -> str:
    problem = principal_problem(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return text


def _operation(text: str) -> Operation:
    try:
        return Operation.of_word(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text} is no operation: {', '.join(one.word for one in OPERATIONS)}"
        ) from None
