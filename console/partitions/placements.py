"""What partitions there are, who leads them and who copies them: what plans start from.

Source: docs/spec/cluster.md §2.6 (preferred leaders) and §2.12 (moves).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.console.groups.scope import TopicScope, is_in_scope, require_existing, topic_scope
from barnabas.protocol.errors import ErrorCode

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
STATE_TOPICS: Final = (TRANSACTIONS, OFFSETS)
"""Who leads these coordinates: they go last, the offsets behind the transactions."""
REFUSED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Codes of a request of which nothing was done."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One partition: who leads it, who copies it, and who of them keeps up."""

    place: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    """The preferred leader first."""
    in_sync: frozenset[int]

    @property
    def preferred(self) -> int:
        """Who is to lead when it can."""
        return self.replicas[0]


Placements = dict[TopicPartition, Placement]


async def placements(admin: Admin) -> Placements:
    """Every partition of every topic that may be described, in their order. Raises KafkaError."""
    return {
        place: Placement(
            place, found.leader, tuple(found.replicas), frozenset(found.in_sync)
        )
        for topic in await admin.list_topics()
        for found in topic.partitions
        for place in [TopicPartition(topic.name, found.partition)]
    }  # fmt: skip


def in_scope(known: Placements, scopes: Sequence[TopicScope]) -> list[Placement]:
    """Those that are meant, all where no topic is named; raises Failure for what is not there."""
    counts: dict[str, int] = {}
    for place in known:
        counts[place.topic] = counts.get(place.topic, 0) + 1
    for name, indexes in scopes:
        require_existing([TopicPartition(name, index) for index in indexes or (0,)], counts)
    return [
        found for place, found in known.items() if is_in_scope(scopes, place.topic, place.partition)
    ]


def add_scope(parser: argparse.ArgumentParser, meaning: str) -> None:
    """``TOPIC`` or ``TOPIC:P,P``, as often as wanted."""
    parser.add_argument(
        "topics", nargs="*", type=topic_scope, metavar="TOPIC[:P,P,...]", help=meaning
    )


def named(place: TopicPartition) -> str:
    """As it is said in a sentence."""
    return f"{place.topic}-{place.partition}"


def listed(nodes: Iterable[int]) -> str:
    """Nodes in a table."""
    return ",".join(map(str, nodes)) or "-"


def rank(topic: str) -> int:
    """0 for plain topics, 1 for transactions, 2 for offsets: the order in which things move."""
    return STATE_TOPICS.index(topic) + 1 if topic in STATE_TOPICS else 0


async def live_nodes(admin: Admin) -> list[int]:
    """The nodes that are up."""
    return [node.id for node in await admin.cluster.nodes()]


def require_up(nodes: Iterable[int], up: Sequence[int]) -> None:
    """Raise Failure for the first node that is not up."""
    for node in nodes:
        if node not in up:
            raise Failure(f"no node {node} is up: there are {listed(up)}")


def reasons(refused: Mapping[TopicPartition, str]) -> list[str]:
    """A line for each reason, with the partitions that it holds for; not a line for each."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for place, why in sorted(refused.items()):
        by_reason.setdefault(why, []).append(place)
    lines = []
    for why, places in by_reason.items():
        more = len(places) - _NAMED_MOST
        several = ", ".join(map(named, places[:_NAMED_MOST]))
        lines.append(f"Error: {several}{f' and {more} more' if more > 0 else ''}: {why}")
    return lines


_NAMED_MOST: Final = 5
