"""Who asks: one user for each way in which entries may stand, so that no entry has to be changed.

A case is about one type of resource; its user may do everything with resources of other types.
Source: docs/spec/security.md §3 (S41, S42; the checks of the matrix).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.broker.handlers.guards import Right
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

from . import acl_model as model
from .asked_apis import GROUP, ID, TOPIC, Asked
from .guarded_node import allow, everything

HOST: Final = "127.0.0.1"
OTHER_TOPIC: Final = "u"
OTHER_GROUP: Final = "gone"
UNKNOWN_ID: Final = "y"
KINDS: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
NAMES: Final = {
    ResourceType.TOPIC: (TOPIC, "gone", OTHER_TOPIC),
    ResourceType.GROUP: (GROUP, OTHER_GROUP),
    ResourceType.CLUSTER: (CLUSTER_NAME,),
    ResourceType.TRANSACTIONAL_ID: (ID, UNKNOWN_ID),
}
"""What questions are about, and what is not there."""


class Case(NamedTuple):
    """One user; ``entries`` are all that stand there for him."""

    user: str
    label: str
    kind: ResourceType | None
    """What it is about; None for what is about everything."""
    entries: Sequence[AclBinding]

    def may(self, right: Right, asked: Asked) -> bool:
        """Whether the entries give him the right, by the plainest model."""
        name = name_of(right.resource_type, asked)
        principal = f"User:{self.user}"
        return model.allowed(
            self.entries, principal, HOST, right.operation, right.resource_type, name
        )


def name_of(kind: ResourceType, asked: Asked) -> str:
    """The resource of a type that a question is about."""
    return {
        ResourceType.TOPIC: asked.topic,
        ResourceType.GROUP: asked.group,
        ResourceType.TRANSACTIONAL_ID: ID,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }[kind]


def cases() -> Iterator[Case]:
    """All of them."""
    yield Case("nothing", "no entry", None, ())
    yield Case("all", "all", None, everything("User:all"))
    for kind in KINDS:
        for number, (label, entries) in enumerate(_ways(kind)):
            user = f"{kind.name.lower()}_{number}"
            principal = f"User:{user}"
            others = everything(principal, without=[kind])
            yield Case(user, label, kind, [*others, *entries(principal)])


Entries = Callable[[str], list[AclBinding]]
"""Made for one principal."""


def _ways(kind: ResourceType) -> Iterator[tuple[str, Entries]]:
    names = NAMES[kind]
    yield "none", lambda who: []
    for operation in _operations():
        yield operation.word, _each(kind, names, operation)
        yield (
            f"All without {operation.word}",
            _both(
                _each(kind, names, Operation.ALL),
                _each(kind, names, operation, permission=Permission.DENY),
            ),
        )
    yield "this host", _each(kind, names, Operation.ALL, host=HOST)
    yield "another host", _each(kind, names, Operation.ALL, host="10.9.9.9")
    yield "another name", _each(kind, [f"{name}x" for name in names], Operation.ALL)
    if kind is ResourceType.CLUSTER:
        return
    prefixes = [name[:1] for name in names]
    yield "every name", _each(kind, ["*"], Operation.ALL)
    yield "prefix", _each(kind, prefixes, Operation.ALL, pattern_type=PatternType.PREFIXED)
    yield (
        "All without prefix",
        _both(
            _each(kind, names, Operation.ALL),
            _each(
                *(kind, prefixes, Operation.ALL),
                permission=Permission.DENY,
                pattern_type=PatternType.PREFIXED,
            ),
        ),
    )
    yield (
        "All without every name",
        _both(
            _each(kind, names, Operation.ALL),
            _each(kind, ["*"], Operation.ALL, permission=Permission.DENY),
        ),
    )
    yield "names with a star", _each(kind, ["*"], Operation.ALL, pattern_type=PatternType.PREFIXED)


def _operations() -> Iterator[Operation]:
    return (one for one in Operation if one is not Operation.ANY)


def _each(
    kind: ResourceType,
    names: Collection[str],
    operation: Operation,
    *,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
) -> Entries:
    return lambda who: [
        allow(
            *(kind, name, operation),
            principal=who,
            host=host,
            permission=permission,
            pattern_type=pattern_type,
        )
        for name in dict.fromkeys(names)
    ]


def _both(first: Entries, second: Entries) -> Entries:
    return lambda who: [*first(who), *second(who)]
