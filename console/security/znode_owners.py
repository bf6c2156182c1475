"""Who may change which znode: brought to what nodes with ``zookeeper.set.acl`` create, or undone.

Kafka's zookeeper-security-migration does the same to the same paths. It creates what is missing of
them; here the nodes do that. Source: docs/spec/security.md §5 (S67); Kafka 3.9 ZkSecurityMigrator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.zookeeper.identity import ZooKeeperIdentity
from barnabas.client.zookeeper.interface import NoAuth, NoNode
from barnabas.client.zookeeper.kazoo_session import KazooSession
from barnabas.client.zookeeper.znode_acl import ZnodeAcl, gives
from barnabas.protocol.zookeeper.znode_access import SECURED_ROOTS, Access, access

CERTIFICATE: Final = "x509:"
"""Whoever ZooKeeper says a certificate is."""
_AT_ONCE: Final = 100
"""Znodes asked about at the same time."""
ROOT: Final = "/"


@dataclass(slots=True)
class WalkResult:
    """What was found and done; paths are without the chroot."""

    right: int = 0
    """Znodes that are as they should be."""
    changed: list[str] = field(default_factory=list)
    """Those that are to be changed, or were."""
    refused: list[str] = field(default_factory=list)
    """Those that ZooKeeper does not let this process at."""


def owners(identity: ZooKeeperIdentity, *, has_certificate: bool) -> frozenset[str]:
    """Who is to own znodes: all that this process is to ZooKeeper."""
    # Of SASL one login is taken, and names do not change with passwords.
    names = {login.id for login in identity.logins}
    return frozenset(names | {CERTIFICATE} if has_certificate else names)


async def walk(
    session: KazooSession,
    *,
    is_open: bool,
    mine: frozenset[str],
    with_root: bool,
    execute: bool,
) -> WalkResult:
    """Look at every znode that is secured and, with ``execute``, change what is not as wanted.

    ``with_root``: also at the root of the cluster's tree, which alone says who may delete and
    create what stands directly below it, ``/controller`` for one. Raises ConnectionLost.
    """
    result = WalkResult()
    if with_root:
        await _visit(session, ROOT, result, is_open=is_open, mine=mine, execute=execute)
    async for paths in _levels(session, SECURED_ROOTS, result):
        await asyncio.gather(
            *(
                _visit(session, path, result, is_open=is_open, mine=mine, execute=execute)
                for path in paths
            )
        )
    result.changed.sort()
    result.refused.sort()
    return result


async def _levels(
    session: KazooSession, roots: Iterable[str], result: WalkResult
) -> AsyncIterator[list[str]]:
    """Every znode at or below the roots, some at a time, parents first.

    So nobody can create below a znode that was looked at already: what nodes create meanwhile is
    as it should be.
    """
    waiting = list(roots)
    while waiting:
        some, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        yield some
        for path, names in zip(
            some,
            await asyncio.gather(*(_children(session, path, result) for path in some)),
            strict=True,
        ):
            waiting += [f"{path}/{name}" for name in names]


async def _children(session: KazooSession, path: str, result: WalkResult) -> list[str]:
    try:
        return await session.children(path)
    except NoNode:
        return []
    except NoAuth:
        if path not in result.refused:
            result.refused.append(path)
        return []


async def _visit(
    session: KazooSession,
    path: str,
    result: WalkResult,
    *,
    is_open: bool,
    mine: frozenset[str],
    execute: bool,
) -> None:
    wanted = Access.OPEN if is_open else access(path)
    try:
        entries: list[ZnodeAcl] = await session.acl(path)
        if gives(entries, wanted, mine):
            result.right += 1
            return
        if execute:
            await session.set_acl(path, wanted)
        result.changed.append(path)
    except NoNode:
        return
    except NoAuth:
        result.refused.append(path)
