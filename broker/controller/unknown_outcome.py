"""Multis of unknown outcome: whether one whose answer was lost was applied.

Source: docs/controller.md ("A lost connection").
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.zookeeper.interface import (
    Check,
    Create,
    Delete,
    Op,
    Set,
    ZooKeeper,
    read_if_any,
)

_OTHERWISE: Final = object()
"""Stands for a result: the znode is not as the operation leaves it."""


async def results_if_applied(zookeeper: ZooKeeper, operations: Sequence[Op]) -> list[Any] | None:
    """What the multi would have answered, where every znode is as it leaves it; else None.

    Ask after a second try of the same multi was refused: then the first can have no effect any
    more that it has not had. Raises ZooKeeperError.
    """
    results = await asyncio.gather(*(_result(zookeeper, operation) for operation in operations))
    return None if _OTHERWISE in results else results


async def _result(zookeeper: ZooKeeper, operation: Op) -> Any:
    found = await read_if_any(zookeeper, operation.path)
    if isinstance(operation, Delete):
        return _OTHERWISE if found else None
    if found is None:
        return _OTHERWISE
    data, stat = found
    match operation:
        case Create():
            owner = zookeeper.session_id if operation.ephemeral else 0
            is_ours = data == operation.data and stat.ephemeral_owner == owner
            return operation.path if is_ours and not operation.sequence else _OTHERWISE
        case Set():  # the version before tells a write of ours from a later one of the same bytes
            is_next = operation.version in (-1, stat.version - 1)
            return stat if data == operation.data and is_next else _OTHERWISE
        case Check():
            return None if stat.version == operation.version else _OTHERWISE
