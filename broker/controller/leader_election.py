"""The rules of every leader election: who leads a partition next, and with which ISR.

Source: docs/spec/cluster.md §2.6 and §2.7. Pure: the order is always that of the assigned replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

NO_LEADER: Final = -1
"""The leader in a state znode when there is none."""
DELETED: Final = -2
"""The leader in UpdateMetadata of a partition that is being deleted."""


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The outcome of an election."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """Records that were acknowledged may be gone."""


def elect_for_new_partition(
    replicas: Sequence[int], live: Collection[int]
) -> ElectionResult | None:
    """The first live replica, every live one in sync; None when all are dead."""
    isr = tuple(node for node in replicas if node in live)
    return ElectionResult(isr[0], isr) if isr else None


def elect_for_offline_partition(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], *, may_be_unclean: bool
) -> ElectionResult | None:
    """The first live replica in sync; outside the in-sync set only where losing is allowed."""
    survivors = tuple(node for node in isr if node in live)
    for node in replicas:
        if node in survivors:
            return ElectionResult(node, survivors)
    if may_be_unclean:
        for node in replicas:
            if node in live:
                return ElectionResult(node, (node,), is_unclean=True)
    return None


def elect_preferred_replica(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> ElectionResult | None:
    """The first assigned replica, or nobody."""
    first = replicas[0]
    return ElectionResult(first, tuple(isr)) if first in live and first in isr else None


def elect_for_reassigned_partition(
    target: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> ElectionResult | None:
    """The first live replica in sync among those that stay; the in-sync set is unchanged."""
    for node in target:
        if node in live and node in isr:
            return ElectionResult(node, tuple(isr))
    return None


def elect_for_controlled_shutdown(
    replicas: Sequence[int],
    isr: Sequence[int],
    live_or_shutting_down: Collection[int],
    shutting_down: Collection[int],
) -> ElectionResult | None:
    """The first replica in sync that stays; those that go leave the in-sync set."""
    stay = tuple(node for node in isr if node not in shutting_down)
    for node in replicas:
        if node in stay and node in live_or_shutting_down:
            return ElectionResult(node, stay)
    return None


def without_replica(leader: int, isr: Sequence[int], gone: int) -> ElectionResult:
    """The state once replica ``gone`` is offline; a one-member in-sync set keeps naming it.

    That member is then the only replica allowed to lead cleanly.
    """
    rest = tuple(node for node in isr if node != gone)
    return ElectionResult(NO_LEADER if leader == gone else leader, rest or tuple(isr))
