"""The states of partitions and replicas, and the tables of valid transitions.

Source: docs/spec/cluster.md §2.13. A move that is not in the table is logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, MutableMapping
from enum import Enum
from typing import Final, TypeVar

log = logging.getLogger(__name__)


class PartitionStatus(Enum):
    """Where a partition is in its life."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    """Assigned, never led."""
    ONLINE = "online"
    OFFLINE = "offline"
    """Its leader is gone."""


class ReplicaStatus(Enum):
    """Where a replica is in its life."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"


_P = PartitionStatus
_R = ReplicaStatus

PARTITION_TRANSITIONS: Final[Mapping[PartitionStatus, frozenset[PartitionStatus]]] = {
    _P.NON_EXISTENT: frozenset({_P.NEW}),
    _P.NEW: frozenset({_P.ONLINE, _P.OFFLINE}),
    _P.ONLINE: frozenset({_P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.NON_EXISTENT}),
}
REPLICA_TRANSITIONS: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    _R.NON_EXISTENT: frozenset({_R.NEW}),
    _R.NEW: frozenset({_R.ONLINE, _R.OFFLINE}),
    _R.ONLINE: frozenset({_R.ONLINE, _R.OFFLINE}),
    _R.OFFLINE: frozenset({_R.ONLINE, _R.OFFLINE, _R.DELETION_STARTED, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.DELETION_SUCCESSFUL, _R.DELETION_INELIGIBLE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.NON_EXISTENT}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.ONLINE}),
}

Key = TypeVar("Key", bound=Hashable)
Status = TypeVar("Status", PartitionStatus, ReplicaStatus)


def valid_transitions(
    keys: Iterable[Key],
    status: Status,
    current: MutableMapping[Key, Status],
    moves: Mapping[Status, frozenset[Status]],
) -> list[Key]:
    """Those of ``keys`` that may become ``status``; what is unknown counts as non-existent."""
    unknown = type(status)("non-existent")
    allowed = []
    for key in keys:
        before = current.get(key, unknown)
        if status in moves[before]:
            allowed.append(key)
        else:
            log.warning("skipped a move of %s from=%s to=%s", key, before.value, status.value)
    return allowed
