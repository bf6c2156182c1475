"""Nodes of Apache Kafka 3.9 and of ours in one cluster, as somebody who moves would run them.

Source: docs/spec/cluster.md §2.15: a mixed cluster speaks inter-broker protocol 2.7-IV1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.console.development.node import NodeProcess
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.zookeeper.znodes import (
    CONTROLLER,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    ControllerRecord,
    PartitionState,
    deletion_path,
    partition_state_path,
    topic_path,
)
from benchmarks.apache_kafka import kafka_node
from benchmarks.server_process import ServerProcess

from . import znodes
from .deployments import SMALL_JVM
from .needs import apache_kafka_jars
from .waiting import eventually

PROTOCOL_VERSION: Final = "2.7-IV1"
OFFSETS: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 5
SESSION_MS: Final = 10_000
"""The longest that the embedded ZooKeeper grants: no node is taken for dead that only waits."""
SHARED: Final = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
"""What all nodes are given, Kafka's and ours, under the same names."""
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_INTERNAL: Final = "listener.name.internal"


def kafka_peer(
    node_id: int,
    directory: Path,
    zookeeper: str,
    *,
    secret: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> ServerProcess:
    """A node of Kafka that can live among ours, not yet started; skips the test without jars.

    With ``secret``, the cluster.secret of our nodes, it proves itself to them, and they to it.
    """
    jars = apache_kafka_jars()
    port, internal = free_ports(2)
    given = {
        "port": str(port),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},INTERNAL://{LOOPBACK}:{internal}",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.protocol.version": PROTOCOL_VERSION,
        **SHARED,
        **(_proof(secret) if secret else {}),
        **(settings or {}),
    }
    return kafka_node(
        jars, directory, zookeeper, node_id=node_id, settings=given, jvm_flags=SMALL_JVM
    )


def _proof(secret: str) -> dict[str, str]:
    """One name and one password: what Kafka shows to our nodes, and what it asks of them."""
    login = f'{_LOGIN} username="barnabas" password="{secret}" user_barnabas="{secret}";'
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{_INTERNAL}.sasl.enabled.mechanisms": "PLAIN",
        f"{_INTERNAL}.plain.sasl.jaas.config": login,
    }


def own_peer(
    node_id: int, directory: Path, zookeeper: str, settings: Mapping[str, str] | None = None
) -> NodeProcess:
    """A node of ours that can live among Kafka's, which have no secret; already serving."""
    port = free_ports(1)[0]
    node = NodeProcess(node_id, port, directory)
    node.configure(
        {
            "broker.id": str(node_id),
            "listeners": f"PLAINTEXT://{node.address}",
            "log.dirs": str(node.directory / "data"),
            "zookeeper.connect": zookeeper,
            **SHARED,
            **(settings or {}),
        }
    )
    restart(node)
    return node


def restart(node: NodeProcess) -> None:
    """Start a node of ours again; return when it serves."""
    node.spawn()
    node.let_serve()
    node.wait_ready()


class Tree:
    """What stands in ZooKeeper about the cluster."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts

    def state(self, topic: str, partition: int) -> PartitionState:
        """Leader and in-sync set; no leader while the partition is not there."""
        data = znodes.data(self._hosts, partition_state_path(topic, partition))
        if data is None:
            return PartitionState(leader=-1, leader_epoch=-1, controller_epoch=-1, isr=())
        return PartitionState.from_json(data)

    def leaders(self, topic: str, partitions: int) -> list[int]:
        """Who leads each partition, in their order."""
        return [self.state(topic, index).leader for index in range(partitions)]

    def await_in_sync(self, topic: str, partitions: int, nodes: set[int]) -> None:
        """Return when exactly these nodes are in sync for every partition."""

        def are() -> bool:
            found = [self.state(topic, index) for index in range(partitions)]
            return all(set(one.isr) == nodes and one.leader in nodes for one in found)

        eventually(are, within_s=240, what=f"{topic} is in sync on {sorted(nodes)}")

    def controller(self) -> int:
        """The node that is controller; -1 while there is none."""
        data = znodes.data(self._hosts, CONTROLLER)
        return ControllerRecord.from_json(data).broker_id if data else -1

    def await_controller(self, among: set[int]) -> int:
        """Return the controller once it is one of these."""
        eventually(lambda: self.controller() in among, what=f"a controller among {sorted(among)}")
        return self.controller()

    def await_registered(self, nodes: set[int]) -> None:
        """Return when exactly these nodes are registered."""

        def are() -> bool:
            return set(map(int, znodes.registered_brokers(self._hosts))) == nodes

        eventually(are, within_s=240, what=f"registered are {sorted(nodes)}")

    def is_registered(self, node: int) -> bool:
        """The node has a session."""
        return node in map(int, znodes.registered_brokers(self._hosts))

    def await_deleted(self, topic: str) -> None:
        """Return when nothing of a deleted topic is left: Kafka answers before that."""
        with znodes.session(self._hosts) as client:
            paths = (deletion_path(topic), topic_path(topic))
            eventually(lambda: not any(map(client.exists, paths)), what=f"{topic} is gone")

    def reassign(self, plan: Mapping[tuple[str, int], list[int]]) -> None:
        """Have replicas moved, the first of each list to be preferred; return when they are."""
        wishes = [
            {"topic": topic, "partition": index, "replicas": replicas}
            for (topic, index), replicas in plan.items()
        ]
        self._ask(REASSIGN_PARTITIONS, wishes)

    def prefer(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Give leadership to the preferred replicas; return when that was tried."""
        wishes = [{"topic": topic, "partition": index} for topic, index in partitions]
        self._ask(PREFERRED_ELECTION, wishes)

    def _ask(self, path: str, wishes: list[dict[str, object]]) -> None:
        with znodes.session(self._hosts) as client:
            client.create(path, json.dumps({"version": 1, "partitions": wishes}).encode())
            eventually(lambda: client.exists(path) is None, within_s=240, what=f"{path} is done")
