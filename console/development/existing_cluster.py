"""A cluster that runs already: tests use it, and are told that they may not harm it.

Source: docs/spec/users.md §6 (the same tests against a real Kafka, or one cluster for many
workers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .cluster_operations import ClusterOperations


class ExistingCluster(ClusterOperations):
    """What Cluster offers, of a cluster that somebody else started.

    ``refuse`` is called, with the reason, for what would harm it; it must raise.
    """

    def __init__(self, bootstrap: str, zookeeper: str, refuse: Callable[[str], NoReturn]) -> None:
        self._bootstrap = bootstrap
        self._refuse = refuse
        self.zookeeper = zookeeper
        """ZooKeeper's connection string; empty when nobody gave it."""
        self.nodes: Sequence[Any] = ()

    @property
    def bootstrap(self) -> str:
        """What was given."""
        return self._bootstrap

    def kill(self, node_id: int) -> NoReturn:
        """Refuse."""
        self._refuse_harm(f"kill node {node_id}")

    def restart(self, node_id: int) -> NoReturn:
        """Refuse."""
        self._refuse_harm(f"restart node {node_id}")

    def pause(self, node_id: int) -> NoReturn:
        """Refuse."""
        self._refuse_harm(f"pause node {node_id}")

    def resume(self, node_id: int) -> NoReturn:
        """Refuse."""
        self._refuse_harm(f"resume node {node_id}")

    def repair(self) -> None:
        """Do nothing: nothing was harmed."""

    def user(self, name: str, password: str | None = None) -> NoReturn:
        """Refuse: its authority and its listeners are not ours."""
        self._refuse_harm(f"make user {name}")

    def allow(self, user: str, *operations: str, **resources: object) -> NoReturn:
        """Refuse."""
        self._refuse_harm(f"give {user} rights")

    def deny(self, user: str, *operations: str, **resources: object) -> NoReturn:
        """Refuse."""
        self._refuse_harm(f"deny {user} rights")

    def _refuse_harm(self, what: str) -> NoReturn:
        self._refuse(f"the cluster at {self._bootstrap} was started elsewhere: will not {what}")
