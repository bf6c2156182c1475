"""The access control list of a znode, as ZooKeeper has it.

Source: docs/spec/security.md §5 (S67).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.zookeeper.znode_access import Access

READ: Final = 1
ALL: Final = 31
"""Read, write, create, delete, admin."""
WORLD: Final = "world:anyone"


@dataclass(frozen=True, slots=True)
class ZnodeAcl:
    """One entry: who may do what."""

    id: str
    """``scheme:id``, for example ``sasl:kafka``."""
    permissions: int


def gives(entries: Iterable[ZnodeAcl], wanted: Access, owners: Collection[str]) -> bool:
    """Whether a list says what it should: all to the owners alone, and to others as ``wanted``.

    An owner that ends with ``:`` stands for whoever has that scheme: what ZooKeeper calls a
    certificate is known to ZooKeeper alone. It may be missing, since servers need not ask for it,
    but somebody has to own the znode.
    """
    found = {entry.id: entry.permissions for entry in entries}
    world = found.pop(WORLD, 0)
    if wanted is Access.OPEN:
        return world == ALL and not found
    schemes = tuple(owner for owner in owners if owner.endswith(":"))
    has_all = found.keys() >= set(owners) - set(schemes)
    has_strangers = any(name not in owners and not name.startswith(schemes) for name in found)
    is_right = bool(found) and all(permissions == ALL for permissions in found.values())
    return is_right and has_all and not has_strangers and world == _WORLD[wanted]


_WORLD: Final = {Access.READABLE: READ, Access.CLOSED: 0}
