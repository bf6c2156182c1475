"""The partitions that keep groups and transactions: who coordinates them, who stands by, how fresh.

Leaders and replicas are told by any Kafka. How a partition stands, and how far a standby is
behind, only Barnabas' own nodes tell, on their metrics port.
Source: docs/spec/console.md §2.2 and §2.3; docs/spec/coordinator.md §7.2.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.partitions.placements import OFFSETS, TRANSACTIONS, Placement, Placements
from barnabas.console.web.watch.node_status import Status, StatusReader, number, rows, text, whole
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition

_KIND: Final = {OFFSETS: "groups", TRANSACTIONS: "transactions"}


@dataclass(frozen=True, slots=True)
class Standby:
    """A node that has a copy and could coordinate next."""

    node: int
    is_in_sync: bool
    behind: int | None
    """Records that it has not applied; None where the node does not tell."""


@dataclass(frozen=True, slots=True)
class StatePartition:
    """One partition of ``__consumer_offsets`` or ``__transaction_state``; None: nobody told."""

    placement: Placement
    standbys: Sequence[Standby]
    count: int | None
    """Groups, or transactional ids, whose names belong here."""
    standing: str | None
    epoch: int | None
    load_seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "topic": self.placement.place.topic,
            "partition": self.placement.place.partition,
            "coordinator": self.placement.leader,
            "kept": self.count,
            "standing": self.standing,
            "epoch": self.epoch,
            "load_seconds": self.load_seconds,
            "replicas": list(self.placement.replicas),
            "standbys": [
                {"node": one.node, "in_sync": one.is_in_sync, "behind": one.behind}
                for one in self.standbys
            ],
        }


async def statuses(admin: Admin, nodes: Iterable[int], token: str | None) -> dict[int, Status]:
    """What nodes say of themselves; whoever says nothing, or nothing to us, is left out."""
    reader = StatusReader(admin.cluster, token)

    async def of(node: int) -> Status | None:
        try:
            return await reader.status_of(node)
        except (KafkaError, OSError):
            return None

    wanted = list(nodes)
    found = await asyncio.gather(*map(of, wanted))
    return {node: status for node, status in zip(wanted, found, strict=True) if status is not None}


async def state_partitions(
    admin: Admin, known: Placements, topic: str, told: Mapping[int, Status]
) -> list[StatePartition]:
    """The partitions of one of the two topics, in their order; none while it is not there."""
    parts = sorted(
        (found for place, found in known.items() if place.topic == topic),
        key=lambda found: found.place,
    )
    counts = await _counts(admin, topic, len(parts)) if parts else None
    return [_described(found, counts, topic, told) for found in parts]


def _described(
    found: Placement, counts: Counter[int] | None, topic: str, told: Mapping[int, Status]
) -> StatePartition:
    partition = found.place.partition
    of_leader = _entry(told, found.leader, "offsets_partitions", partition, topic)
    return StatePartition(
        placement=found,
        standbys=[
            Standby(
                node,
                node in found.in_sync,
                whole(_entry(told, node, "standbys", partition, topic).get("behind")),
            )
            for node in found.replicas
            if node != found.leader
        ],
        count=None if counts is None else counts[partition],
        standing=text(of_leader.get("standing")),
        epoch=whole(of_leader.get("epoch")),
        load_seconds=number(of_leader.get("load_seconds")),
    )


def _entry(
    told: Mapping[int, Status], node: int | None, part: str, partition: int, topic: str
) -> dict[str, Any]:
    """What a node says of its copy: of offsets only, transactions are not told of."""
    if topic != OFFSETS or node is None:
        return {}
    entries = (row for row in rows(told.get(node), part) if row.get("partition") == partition)
    return next(entries, {})


async def _counts(admin: Admin, topic: str, partitions: int) -> Counter[int] | None:
    """How many names belong to each partition; None for who may not list them."""
    try:
        if topic == OFFSETS:
            names = [listing.group for listing in await admin.list_groups()]
        else:
            names = [one.transactional_id for one in await admin.list_transactions()]
    except KafkaError as error:
        if error.code in (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION
        ):  # fmt: skip
            return None
        raise
    return Counter(group_partition(name, partitions) for name in names)


def partition_of(known: Placements, topic: str, name: str) -> TopicPartition | None:
    """Where a group or a transactional id is kept; None while the topic is not there."""
    count = sum(place.topic == topic for place in known)
    return TopicPartition(topic, group_partition(name, count)) if count else None


def kind_of(topic: str) -> str:
    """``groups`` or ``transactions``."""
    return _KIND[topic]
