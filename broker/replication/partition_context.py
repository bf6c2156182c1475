"""What a hosted partition is given, what it asks of the node, and the callbacks it is handed.

Source: docs/spec/cluster.md §2.14 (roles) and §3.6 (changes of the in-sync set).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from .partition import Partition

OnComplete = Callable[[ErrorCode], None]
"""Called once with the outcome of what was waited for."""


class FetchWaiter(Protocol):
    """Somebody who waits for readable bytes."""

    def grew(self, count: int) -> None:
        """So many bytes more can be read."""

    def end(self) -> None:
        """Nothing more will come from here: ask again."""


class AppendWatcher(Protocol):
    """Somebody who reads along what a follower appends."""

    def followed(self, before: int, data: bytes) -> None:
        """``data`` was appended where the log ended ``before``, and the high watermark moved up.

        Either may be nothing.
        """


@dataclass(frozen=True, slots=True)
class PartitionRole:
    """What the controller decided about one replica, as LeaderAndIsr tells it."""

    leader_id: int
    leader_epoch: int
    controller_epoch: int
    isr: Sequence[int]
    replicas: Sequence[int]
    zk_version: int
    """Of the state znode that holds this: every decision of a controller raises it."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingIsrChange:
    """An in-sync set on its way into the state znode, which must have ``zk_version`` for it."""

    partition: Partition
    isr: Sequence[int]
    leader_epoch: int
    controller_epoch: int
    zk_version: int


class PartitionContext(Protocol):
    """What a leader asks of the node that hosts it; :class:`~.isr.IsrManager` in production."""

    lag_max_s: float
    """``replica.lag.time.max.ms``: a replica not caught up for longer is not in sync."""

    def now(self) -> float:
        """The loop's time in seconds."""

    def live_nodes(self) -> Collection[int]:
        """Nodes that are registered, as far as this one was told."""

    def propose(self, change: PendingIsrChange) -> None:
        """Have an in-sync set written down; the partition is told how that went."""
