"""Assignors of the group's leader: range, round-robin, cooperative-sticky.

Pure: members and partition counts in, partitions of each member out, the same for the same
input. Source: Kafka's RangeAssignor, RoundRobinAssignor and CooperativeStickyAssignor (3.9);
KIP-429 (what moves is given up before it is given out).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Final, NamedTuple, Protocol

from barnabas.client.topology import TopicPartition
from barnabas.protocol import consumer_protocol
from barnabas.protocol.consumer_protocol import Subscription, TopicPartitions
from barnabas.protocol.errors import CorruptRequest

Assigned = dict[str, list[TopicPartition]]
"""What each member is to read, by member id."""

_GENERATION_BYTES: Final = 4
_SUBSCRIPTION_VERSION: Final = 2


class Candidate(NamedTuple):
    """A member as the leader of the group sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """In which it was given what it owns."""


class Assignor(Protocol):
    """A strategy; its name is what members of a group agree on."""

    name: str
    is_cooperative: bool
    """Members keep what they own while the group rebalances."""

    def assign(self, members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
        """Deal out the partitions of every topic that somebody subscribed to."""
        ...


class RangeAssignor:
    """Each topic for itself, neighbours together, the first members one more."""

    name = "range"
    is_cooperative = False

    def assign(self, members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
        """Deal out by topic."""
        found: Assigned = {member.member_id: [] for member in members}
        for topic, count in sorted(counts.items()):
            readers = [member for member in _ordered(members) if topic in member.topics]
            if not readers:
                continue
            least, extra = divmod(count, len(readers))
            start = 0
            for index, member in enumerate(readers):
                stop = start + least + (index < extra)
                mine = [TopicPartition(topic, number) for number in range(start, stop)]
                found[member.member_id] += mine
                start = stop
        return found


class RoundRobinAssignor:
    """All partitions of all topics in turns, leaving out who did not subscribe."""

    name = "roundrobin"
    is_cooperative = False

    def assign(self, members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
        """Deal out in turns."""
        found: Assigned = {member.member_id: [] for member in members}
        turns = cycle(_ordered(members))
        for topic_partition in _topic_partitions(members, counts):
            member = next(
                candidate for candidate in turns if topic_partition.topic in candidate.topics
            )
            found[member.member_id].append(topic_partition)
        return found


class CooperativeStickyAssignor:
    """Members keep what they have as far as balance allows; what moves takes two generations.

    With equal subscriptions nobody has two partitions more than another.
    """

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
        """Deal out, and hold back what its owner has still to give up."""
        owners = _owners(members, counts)
        found = self.balance(members, counts, owners)
        for member_id, topic_partitions in found.items():
            found[member_id] = [
                topic_partition
                for topic_partition in topic_partitions
                if owners.get(topic_partition, member_id) == member_id
            ]
        return found

    def balance(
        self,
        members: Sequence[Candidate],
        counts: Mapping[str, int],
        owners: Mapping[TopicPartition, str],
    ) -> Assigned:
        """Where everything is to be in the end."""
        shares: dict[str, dict[TopicPartition, None]] = {
            member.member_id: {} for member in _ordered(members)
        }
        readers = _readers(members, counts)
        unowned = []
        for topic_partition in _topic_partitions(members, counts):
            if topic_partition in owners:
                shares[owners[topic_partition]][topic_partition] = None
            else:
                unowned.append(topic_partition)
        unowned.sort(key=lambda topic_partition: len(readers[topic_partition.topic]))
        for topic_partition in unowned:
            least = min(
                readers[topic_partition.topic], key=lambda member_id: len(shares[member_id])
            )
            shares[least][topic_partition] = None
        while move := _next_move(shares, readers):
            topic_partition, source, target = move
            del shares[source][topic_partition]
            shares[target][topic_partition] = None
        return {member_id: sorted(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}


def encode_subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
) -> bytes:
    """What a member tells the leader; the generation stands where old and new leaders look."""
    return consumer_protocol.build_subscription(
        Subscription(
            topics=sorted(topics),
            user_data=generation.to_bytes(_GENERATION_BYTES, "big", signed=True),
            owned_partitions=_by_topic(owned),
            generation_id=generation,
        ),
        _SUBSCRIPTION_VERSION,
    )


def candidate(member_id: str, instance_id: str | None, data: bytes) -> Candidate:
    """A member from what it told; raises CorruptRequest."""
    said = consumer_protocol.parse_subscription(data)
    generation = said.generation_id
    user_data = said.user_data or b""
    if generation < 0 and len(user_data) == _GENERATION_BYTES:
        generation = int.from_bytes(user_data, "big", signed=True)
    owned = [
        TopicPartition(of_topic.topic, number)
        for of_topic in said.owned_partitions
        for number in of_topic.partitions
    ]
    return Candidate(member_id, instance_id, frozenset(said.topics), tuple(owned), generation)


def encode_assignment(topic_partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader sends to one member."""
    return consumer_protocol.build_assignment(
        consumer_protocol.Assignment(assigned_partitions=_by_topic(topic_partitions)), 1
    )


def decode_assignment(data: bytes) -> set[TopicPartition]:
    """What a member was given; raises CorruptRequest."""
    if not data:
        return set()
    given = consumer_protocol.parse_assignment(data)
    if any(number < 0 for of_topic in given.assigned_partitions for number in of_topic.partitions):
        raise CorruptRequest("an assignment of a negative partition")
    return {
        TopicPartition(of_topic.topic, number)
        for of_topic in given.assigned_partitions
        for number in of_topic.partitions
    }


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(topic_partitions):
        topics[topic].append(partition)
    return [
        TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics.items()
    ]


def _ordered(members: Iterable[Candidate]) -> list[Candidate]:
    """Static members first, by the name that outlives them."""
    return sorted(
        members,
        key=lambda member: (member.instance_id is None, member.instance_id or member.member_id),
    )


def _topic_partitions(
    members: Iterable[Candidate], counts: Mapping[str, int]
) -> list[TopicPartition]:
    """Every partition that somebody wants to read."""
    wanted = frozenset[str]().union(*(member.topics for member in members))
    return [
        TopicPartition(topic, number)
        for topic in sorted(wanted & counts.keys())
        for number in range(counts[topic])
    ]


def _readers(members: Iterable[Candidate], counts: Mapping[str, int]) -> dict[str, list[str]]:
    ordered = _ordered(members)
    return {
        topic: [member.member_id for member in ordered if topic in member.topics]
        for topic in counts
    }


def _owners(members: Iterable[Candidate], counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who owns what is still there to be owned: of two claims the one of the newer generation.

    Two of one generation are no claim at all: nobody keeps the partition.
    """
    claims: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for member in members:
        for topic_partition in member.owned:
            if topic_partition.topic in member.topics and topic_partition.partition < counts.get(
                topic_partition.topic, 0
            ):
                claims[topic_partition].append((member.generation, member.member_id))
    found = {}
    for topic_partition, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        owners = [member_id for generation, member_id in claimed if generation == newest]
        if len(owners) == 1:
            found[topic_partition] = owners[0]
    return found


def _next_move(
    shares: Mapping[str, Mapping[TopicPartition, None]], readers: Mapping[str, Sequence[str]]
) -> tuple[TopicPartition, str, str] | None:
    """One partition whose move makes shares more alike; None when there is none."""
    sizes = {member_id: len(share) for member_id, share in shares.items()}
    for source in sorted(sizes, key=lambda member_id: -sizes[member_id]):
        last_of = {topic_partition.topic: topic_partition for topic_partition in shares[source]}
        for topic, topic_partition in last_of.items():
            target = min(readers[topic], key=lambda member_id: sizes[member_id])
            if sizes[source] - sizes[target] > 1:
                return topic_partition, source, target
    return None
