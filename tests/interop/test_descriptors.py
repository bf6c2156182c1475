"""Open descriptors of a node: what topics needed is given back when they are deleted.

Source: docs/spec/log.md §4.2 (a deleted segment is closed as soon as nobody uses it).
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess
from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import await_leaders_at
from tests.harness.raw_calls import FETCH, leaders
from tests.harness.raw_connection import RawConnection, addresses_of, array, request_frame, text
from tests.harness.records import Sent
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

TOPICS, PARTITIONS, NODES = 12, 3, 3
LARGE = bytes(150_000)
"""A segment holds three of them, and a fetch of one is sent by the kernel."""
SETTINGS = {"segment.bytes": "500000", "max.message.bytes": "1000000"}


def open_files(node: NodeProcess, topics: list[str]) -> list[str]:
    """What this node has open of these topics: names of files, deleted ones too."""
    found = []
    for descriptor in Path(f"/proc/{node.pid}/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return [path for path in found if any(f"/{topic}-" in path for topic in topics)]


def change(bootstrap: str, topics: list[str], *, is_deletion: bool = False) -> None:
    async def changed() -> None:
        async with Admin.of(bootstrap) as admin:
            if is_deletion:
                await admin.delete_topics(topics)
                return
            await admin.create_topics(
                [
                    NewTopic(
                        name=topic,
                        partitions=PARTITIONS,
                        replication_factor=NODES,
                        configs=SETTINGS,
                    )
                    for topic in topics
                ]
            )

    asyncio.run(changed())


def leave_in_the_middle(cluster: Cluster, topic: str) -> None:
    """Ask for large answers, read none of them, and go."""
    with RawConnection(addresses_of(cluster.bootstrap)[0]) as link:
        led = leaders(link, topic)
    for index, address in led.items():
        place = struct.pack(">iqi", index, 0, 1 << 20)
        body = struct.pack(">iiii", -1, 100, 1, 1 << 24) + b"\0" + array(text(topic) + array(place))
        with RawConnection(address) as link:
            link.send(request_frame(FETCH, 4, body) * 20)


def test_the_descriptors_of_deleted_topics_are_given_back() -> None:
    with Cluster(NODES, settings=STEADY) as cluster:
        coordinator(addresses_of(cluster.bootstrap), "g")
        topics = [f"gone{number}" for number in range(TOPICS)]
        change(cluster.bootstrap, topics)
        library = Confluent()
        for topic in topics:
            await_leaders_at(addresses_of(cluster.bootstrap), topic, PARTITIONS)
            sent = [
                Sent(partition=number % PARTITIONS, value=LARGE) for number in range(3 * PARTITIONS)
            ]
            library.produce(cluster.bootstrap, topic, sent)
        for topic in topics[:3]:
            library.read(cluster.bootstrap, topic, dict.fromkeys(range(PARTITIONS), "beginning"))
            leave_in_the_middle(cluster, topic)
        for node in cluster.nodes:
            assert len(open_files(node, topics)) >= TOPICS * PARTITIONS
        change(cluster.bootstrap, topics, is_deletion=True)
        for node in cluster.nodes:
            eventually(lambda: not open_files(node, topics), what=f"node {node.id} closes them")  # noqa: B023
