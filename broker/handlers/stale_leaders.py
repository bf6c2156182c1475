"""A leader that may have been replaced without knowing it does not tell a consumer to begin anew.

Its log lacks what its successor wrote, so that a consumer's position can lie above its end, and the
epoch of a record can be unknown to it. In Kafka that is OFFSET_OUT_OF_RANGE and an undefined end,
by which clients give their position up: kafka-python, which takes any node's metadata for the
newest, then reads the partition from its first record and commits that. A lease says when a node
may have been replaced; until it is sure again, such a consumer is sent to look for the leader.
Source: docs/spec/cluster.md §1.10 and §3.10; docs/spec/reliability.md §3.1 (a).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.replication.partition import Partition


class StaleLeaders:
    """``holds_lease`` says whether nobody can have been put in this node's place."""

    def __init__(self, holds_lease: Callable[[], bool]) -> None:
        self._holds_lease = holds_lease

    def may_include(self, partition: Partition | None) -> bool:
        """Whether another node may lead this partition by now, though this one was never told."""
        return not self._holds_lease() or (partition is not None and partition.is_of_former_session)
