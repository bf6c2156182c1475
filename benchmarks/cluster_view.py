"""What ZooKeeper says about a cluster: who rules, who leads, who is in sync.

Source: docs/spec/cluster.md §1. The znodes are those of Kafka, so this looks at either server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

OFFSETS_TOPIC = "__consumer_offsets"
_START_S = 60.0


class ClusterView:
    """One session beside the servers; every question is a few reads. Use it in a ``with``."""

    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts, timeout=30.0)

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_S)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._client.stop()
        self._client.close()

    def brokers(self) -> set[int]:
        """The ids that are registered."""
        try:
            return {int(name) for name in self._client.get_children("/brokers/ids")}
        except NoNodeError:
            return set()

    def controller(self) -> int | None:
        """The id of the node that rules; None between two of them."""
        found = self._read("/controller")
        return None if found is None else int(found["brokerid"])

    def number(self, path: str) -> int | None:
        """What a znode that holds a number says; None without an answer."""
        try:
            return int(self._client.get(path)[0])
        except KazooException:
            return None

    def voters(self) -> list[int]:
        """Whose acknowledgements give the controller its authority; nobody's in Kafka."""
        found = self._read("/barnabas/voters")
        return [] if found is None else list(found["voters"])

    def leaders(self, topic: str) -> dict[int, int]:
        """Who leads each partition of a topic; -1 for nobody."""
        states = {index: self._state(topic, index) for index in self._replicas(topic)}
        return {index: int(state["leader"]) for index, state in states.items() if state}

    def wants(self, topics: Iterable[str], *, preferred: bool = False) -> list[str]:
        """What is missing from rest: one line for each partition that is not as it should be.

        All replicas in sync; with ``preferred``, the first of them leads.
        """
        found: list[str] = []
        for topic in topics:
            replicas = self._replicas(topic)
            if not replicas:
                found.append(f"{topic} is not there")
            for index, assigned in replicas.items():
                state = self._state(topic, index) or {"leader": -1, "isr": []}
                is_led = state["leader"] == assigned[0] if preferred else state["leader"] >= 0
                if not is_led or sorted(state["isr"]) != sorted(assigned):
                    found.append(
                        f"{topic}-{index} leader={state['leader']} of {assigned} "
                        f"in sync {state['isr']}"
                    )
        return found

    def _replicas(self, topic: str) -> dict[int, list[int]]:
        found = self._read(f"/brokers/topics/{topic}") or {"partitions": {}}
        return {int(index): list(ids) for index, ids in found["partitions"].items()}

    def _state(self, topic: str, partition: int) -> dict[str, Any] | None:
        return self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._client.get(path)[0])
        except KazooException:
            return None
        return found
