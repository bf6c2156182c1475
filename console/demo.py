"""The main job in half a minute of reading: ``python -m barnabas.console.demo``, or ``make demo``.

A cluster comes up, records are sent, a group commits, a node is killed and comes back, and the
offsets are still there. Ends with exit code 0, or with a line that says what was not as promised.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.output import print_table
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.demo_clients import OnlyMember, read, send
from barnabas.console.groups.describe import OFFSET_COLUMNS, offset_cells

_NODES: Final = 3
_TOPIC: Final = "orders"
_PARTITIONS: Final = 3
_RECORDS: Final = 100
"""For each partition."""
_GROUP: Final = "billing"
_VALUES: Final = [f"order {number}".encode() for number in range(_RECORDS)]
_HALFWAY: Final = {
    TopicPartition(_TOPIC, index): _RECORDS // 2 + index for index in range(_PARTITIONS)
}


def main() -> int:
    """Tell the story; 0 when everything was as promised."""
    try:
        started = time.monotonic()
        with Cluster(_NODES) as cluster:
            took_s = time.monotonic() - started
            say(f"ZooKeeper and {_NODES} nodes are up after {took_s:.1f} s: {cluster.bootstrap}")
            node_id = asyncio.run(first_half(cluster.bootstrap))
            _kill_and_restart(cluster, node_id)
            asyncio.run(second_half(cluster.bootstrap))
            stopping = time.monotonic()
        took_s = time.monotonic() - stopping
        say(f"The cluster is down after {took_s:.1f} s; nothing is left of it.")
    except (Failure, KafkaError) as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return 0


def say(text: str) -> None:
    """One step of the story."""
    print(f"\n* {text}", flush=True)


async def first_half(bootstrap: str) -> int:
    """Send, read and commit; returns the id of the node that keeps the group's offsets."""
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=_TOPIC, partitions=_PARTITIONS)])
        say(f"Topic {_TOPIC} has {_PARTITIONS} partitions, led by nodes {await _leaders(admin)}.")
        member = OnlyMember(admin.cluster, _GROUP, _TOPIC, _PARTITIONS)
        await _send_all(admin, member)
        await member.join()
        for topic_partition in member.topic_partitions:
            _require(len(await read(admin.cluster, topic_partition, 0)) == _RECORDS, "records")
        await member.commit(_HALFWAY)
        say(f"Group {_GROUP} has read about half of them and committed its offsets:")
        await _show(admin)
        await member.leave()
        # Leaving is not waited for by anybody. A commit behind it in the same log is, with both.
        await member.commit(_HALFWAY)
        return (await admin.cluster.coordinator_of(_GROUP)).id


async def second_half(bootstrap: str) -> None:
    """Find everything as it was acknowledged, and read on from there."""
    async with Admin.of(bootstrap) as admin:
        committed = await admin.committed_offsets(_GROUP)
        found = {topic_partition: commit.offset for topic_partition, commit in committed.items()}
        _require(found == _HALFWAY, "offsets")
        say("The offsets are still there:")
        await _show(admin)
        member = OnlyMember(admin.cluster, _GROUP, _TOPIC, _PARTITIONS)
        await member.join()
        for topic_partition, offset in _HALFWAY.items():
            rest = await read(admin.cluster, topic_partition, offset)
            _require(rest == _VALUES[offset:], "records")
        await member.commit(dict.fromkeys(member.topic_partitions, _RECORDS))
        say("A new member has gone on exactly where the first one stopped:")
        await _show(admin)
        await member.leave()


def _kill_and_restart(cluster: Cluster, node_id: int) -> None:
    say(f"Node {node_id} keeps this group's offsets: kill -9 {cluster.node(node_id).pid}")
    cluster.kill(node_id)
    started = time.monotonic()
    cluster.restart(node_id)
    say(f"Node {node_id} is back after {time.monotonic() - started:.1f} s.")


async def _send_all(admin: Admin, member: OnlyMember) -> None:
    for topic_partition in member.topic_partitions:
        await send(admin.cluster, topic_partition, _VALUES, int(time.time() * 1000))
    say(f"{_RECORDS * _PARTITIONS} records are sent and acknowledged.")


async def _show(admin: Admin) -> None:
    rows = await admin.progress(await admin.describe_group(_GROUP))
    print()
    print_table(OFFSET_COLUMNS, [offset_cells(row) for row in rows])


async def _leaders(admin: Admin) -> str:
    (topic,) = await admin.describe_topics([_TOPIC])
    return ", ".join(str(partition.leader) for partition in topic.partitions)


def _require(is_so: bool, what: str) -> None:
    if not is_so:
        raise Failure(f"the {what} are not what was acknowledged")


if __name__ == "__main__":
    sys.exit(main())
