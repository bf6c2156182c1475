"""What a test asks of a cluster, in blocking calls, whoever started it.

Every call runs on a loop of its own in a thread of its own: it may be made beside a running loop,
of a notebook for example. Source: docs/spec/users.md §6.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.protocol.messages.metadata import MetadataRequest, Topic

_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.02

Result = TypeVar("Result")


class ClusterOperations(ABC):
    """Topics and offsets of the cluster at :attr:`bootstrap`."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """What clients are given: host and port of every node."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic; returns its name once every node knows a leader of each partition.

        A ``replication_factor`` of -1 is the cluster's default. Raises KafkaError.
        """

        async def create(admin: Admin) -> str:
            new = NewTopic(
                name=name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=settings or {},
            )
            await admin.create_topics([new])
            await until(lambda: _is_led_everywhere(admin, name, partitions), f"leaders of {name}")
            return name

        return self._ask(create)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. Raises KafkaError."""
        self._ask(lambda admin: admin.delete_topics([name]))

    def wait_in_sync(self, topic: str, replicas: int) -> None:
        """Return when each partition has ``replicas`` in-sync ones; Failure after a minute."""

        async def is_so(admin: Admin) -> bool:
            (described,) = await admin.describe_topics([topic])
            return all(len(partition.in_sync) >= replicas for partition in described.partitions)

        async def wait(admin: Admin) -> None:
            await until(lambda: is_so(admin), f"{replicas} in-sync replicas of {topic}")

        self._ask(wait)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed, by ``(topic, partition)``."""

        async def fetch(admin: Admin) -> dict[TopicPartition, int]:
            found = await admin.committed_offsets(group)
            return {topic_partition: commit.offset for topic_partition, commit in found.items()}

        return self._ask(fetch)

    def _ask(self, call: Callable[[Admin], Coroutine[Any, Any, Result]]) -> Result:
        async def ask() -> Result:
            async with Admin.of(self.bootstrap) as admin:
                return await call(admin)

        return _apart(ask())


async def _is_led_everywhere(admin: Admin, topic: str, partitions: int) -> bool:
    asked = MetadataRequest(topics=[Topic(name=topic)], allow_auto_topic_creation=False)
    for node in await admin.cluster.nodes():
        (answer,) = (await admin.cluster.to_node(node.id, asked)).topics
        led: Sequence[Any] = [
            partition for partition in answer.partitions if partition.leader_id >= 0
        ]
        if len(led) < partitions:
            return False
    return True


async def until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return once it is so; Failure after a minute, naming ``what`` was waited for."""
    try:
        async with asyncio.timeout(_WAIT_S):
            while not await is_so():  # noqa: ASYNC110 - what changes is in other processes
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise Failure(f"waited {_WAIT_S:g} s for {what}") from None


def _apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` to its end in a thread of its own; returns or raises what it does."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="barnabas-cluster-calls", daemon=True)
    thread.start()
    try:
        return outcome.result()
    finally:
        thread.join()
