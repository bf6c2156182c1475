"""What is stored of one partition of an OffsetCommit: the commit, and its record.

Source: docs/spec/coordinator.md §1.6 and §2.2.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.messages.offset_commit import Partition
from barnabas.protocol.offsets_topic import offset_key, offset_value

from .offsets import Commit

FOREVER_MS: Final = 2**63 - 1
"""The latest time that a record can hold: clients ask for as long a retention as they can name."""


def commit_of(asked: Partition, now: int, retention: int) -> Commit:
    """What is stored: the client's own time in version 1, an expiry of its own in versions 2 to 4.

    Without an expiry of its own an offset lives as long as its group, and a retention after that
    (KIP-211): an offset of a live group that expired made its consumers start anew (KAFKA-4682).
    """
    stamp = asked.commit_timestamp
    return Commit(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now if stamp < 0 else stamp,
        min(now + retention, FOREVER_MS) if retention >= 0 else -1,
    )


def entry_of(group_id: str, name: str, index: int, commit: Commit) -> tuple[bytes, bytes]:
    """The record of a commit: value version 3, or 1 where it has an expiry of its own."""
    expires = commit.expires_ms
    value = offset_value(
        commit.offset,
        commit.leader_epoch,
        commit.metadata,
        commit.committed_ms,
        None if expires < 0 else expires,
    )
    return offset_key(group_id, name, index), value
