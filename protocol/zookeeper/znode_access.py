"""Who may read and write which znode where ``zookeeper.set.acl`` is true, and what is secured.

Source: docs/spec/security.md §5 (S67); Kafka 3.9 ZkData.defaultAcls, ZkSecurityMigrator.
"""

from __future__ import annotations

import enum
from typing import Final

from . import znodes


class Access(enum.Enum):
    """What others than the creator may do with a znode; the creator may do everything."""

    OPEN = "open"
    """Everything."""
    READABLE = "creator-all, world-read"
    """Read it."""
    CLOSED = "creator-all"
    """Nothing: it holds what passwords can be guessed by, or who is asked for a login."""


SENSITIVE_ROOTS: Final = ("/config/users", znodes.CONFIG_BROKERS, "/delegation_token/tokens")
"""At or below these nobody else reads."""
SECURED_ROOTS: Final = (
    znodes.ADMIN,
    "/brokers",
    "/cluster",
    znodes.CONFIG,
    znodes.CONTROLLER,
    znodes.CONTROLLER_EPOCH,
    znodes.ISR_CHANGES,
    znodes.PRODUCER_ID_BLOCK,
    znodes.LOG_DIR_EVENTS,
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    znodes.FEATURE,
    "/migration",
    znodes.OURS,
)
"""What ``barnabas zookeeper secure`` goes through: Kafka's list, and what Kafka does not know."""


def access(path: str) -> Access:
    """What a znode gets when a node creates it; ``path`` is without the chroot."""
    if _is_at_or_below(path, znodes.CONSUMERS):
        # Kafka has this for /consumers alone, and below it locks classic consumers out of what a
        # broker created for a commit of theirs.
        return Access.OPEN
    if any(_is_at_or_below(path, root) for root in SENSITIVE_ROOTS):
        return Access.CLOSED
    return Access.READABLE


def _is_at_or_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
