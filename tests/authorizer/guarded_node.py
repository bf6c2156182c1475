"""A whole node in memory with an authorizer, whose handlers are asked in anybody's name.

The node is the shipped daemon on a seeded loop (tests/sim); only the proof of who asks is left out:
calls come from a peer that says its principal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from barnabas.broker import daemon
from barnabas.broker.authorizer.acl import AclSnapshot, ResourceAcls
from barnabas.broker.handlers.call import PendingResponse, is_coroutine, response_of
from barnabas.broker.node import Node
from barnabas.broker.settings.node_config import load
from barnabas.client.connection.connection import Connection
from barnabas.protocol import api
from barnabas.protocol.acl import (
    EVERYBODY,
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.codec.wire import schema_of
from tests.handlers.peer import SomePeer, call
from tests.sim.simulated_loop import seeded_runner
from tests.sim.test_daemon import (
    HOST,
    SINGLE_NODE_SETTINGS,
    SingleNodeCluster,
    eventually,
    prepared,
    taken,
)

SETTINGS: Final = {
    **SINGLE_NODE_SETTINGS,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
ALICE: Final = "User:alice"
ROOT: Final = "User:root"


def allow(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    principal: str = ALICE,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
) -> AclBinding:
    """One entry."""
    return AclBinding(
        ResourcePattern(kind, name, pattern_type), Acl(principal, host, operation, permission)
    )


def everything(
    principal: str = ALICE, *, without: Collection[ResourceType] = ()
) -> list[AclBinding]:
    """All operations on all resources, but those of some types."""
    return [
        allow(
            kind,
            "*" if kind is not ResourceType.CLUSTER else "kafka-cluster",
            Operation.ALL,
            principal=principal,
        )
        for kind in ResourceType
        if kind is not ResourceType.ANY and kind not in without
    ]


class GuardedNode:
    """The node, and how it is asked."""

    def __init__(self, node: Node, cluster: SingleNodeCluster) -> None:
        self.node = node
        self.cluster = cluster
        assert node._acls is not None
        self.acls = node._acls
        self.peer = SomePeer(principal=ALICE)

    def entries(self, bindings: Iterable[AclBinding]) -> None:
        """These hold from now on, and no others."""
        by_pattern: dict[ResourcePattern, set[Acl]] = {}
        for pattern, acl in bindings:
            by_pattern.setdefault(pattern, set()).add(acl)
        self.acls.cache.snapshot = AclSnapshot(
            {pattern: ResourceAcls(acls) for pattern, acls in by_pattern.items()},
            super_users=[ROOT],
        )

    async def ask(
        self, request: Any, version: int, peer: SomePeer | None = None, client_id: str = "test"
    ) -> Any:
        """What the handler answers."""
        asked = call(request, version, peer=peer or self.peer, client_id=client_id)
        answer = self.node._dispatcher._handlers[asked.key](asked)
        if is_coroutine(answer):
            answer = await answer
        return await response_of(answer) if isinstance(answer, PendingResponse) else answer


@contextlib.contextmanager
def guarded_node(seed: int = 1) -> Iterator[tuple[asyncio.Runner, GuardedNode]]:
    """A node that serves, with topic ``t``, group ``g`` and its offset 7."""
    found: list[Node] = []

    class Noticed(Node):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self)

    with seeded_runner(seed) as (runner, loop):
        cluster = SingleNodeCluster(loop)
        cluster.config = load(SETTINGS)
        daemon.Node = Noticed  # type: ignore[attr-defined, assignment]
        try:
            task = runner.run(cluster.start())
        finally:
            daemon.Node = Node  # type: ignore[attr-defined]
        guarded = GuardedNode(found[0], cluster)
        runner.run(_filled(guarded))
        yield runner, guarded
        cluster.stop.set()
        runner.run(_ended(task))


async def _ended(task: asyncio.Task[None]) -> None:
    await task


async def _filled(guarded: GuardedNode) -> None:
    guarded.entries(everything(EVERYBODY))
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    await eventually(partial(taken, connection, 7))
    await connection.close()


DENIALS: Final = frozenset({29, 30, 31, 53})


def codes(answer: Any) -> list[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return [code for one in answer for code in codes(one)]
    try:
        fields = schema_of(type(answer)).fields
    except AttributeError:
        return []
    found: list[int] = []
    for field in fields:
        value = getattr(answer, field.name)
        found += [int(value)] if field.name.endswith("error_code") else codes(value)
    return found


def denials(answer: Any) -> set[int]:
    """The codes that say that something may not be done."""
    return set(DENIALS & set(codes(answer)))


def name_of(request: Any) -> str:
    """The API's."""
    return api.spec_of(type(request)).name
