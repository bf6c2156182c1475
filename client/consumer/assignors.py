"""Assignors of the group's leader: range, round-robin, cooperative-sticky.

Pure: members and partition counts in, partitions of each member out, the same for the same
input. Source: Kafka's RangeAssignor, RoundRobinAssignor and CooperativeStickyAssignor (3.9);
KIP-429 (what moves is given up before it is given out).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.client.round_robin import next_in_turn
from barnabas.client.topology import TopicPartition
from barnabas.protocol import consumer_protocol
from barnabas.protocol.consumer_protocol import Subscription, TopicPartitions
from barnabas.protocol.errors import CorruptRequest

from .sticky_balance import StickyBalance

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
        ordered = _ordered(members)
        readers_of = _readers(ordered, counts)
        for topic, count in sorted(counts.items()):
            readers = readers_of[topic]
            if not readers:
                continue
            least, extra = divmod(count, len(readers))
            start = 0
            for index, member in enumerate(readers[:count]):  # none is left for more of them
                stop = start + least + (index < extra)
                mine = [TopicPartition(topic, number) for number in range(start, stop)]
                found[ordered[member].member_id] += mine
                start = stop
        return found


class RoundRobinAssignor:
    """All partitions of all topics in turns, leaving out who did not subscribe."""

    name = "roundrobin"
    is_cooperative = False

    def assign(self, members: Sequence[Candidate], counts: Mapping[str, int]) -> Assigned:
        """Deal out in turns."""
        found: Assigned = {member.member_id: [] for member in members}
        ordered = _ordered(members)
        readers_of = _readers(ordered, counts)
        turn = 0
        for topic_partition in _topic_partitions(members, counts):
            member = next_in_turn(readers_of[topic_partition.topic], turn)
            found[ordered[member].member_id].append(topic_partition)
            turn = member + 1
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
        ordered = _ordered(members)
        number_of = {member.member_id: number for number, member in enumerate(ordered)}
        readers = _readers(ordered, counts)
        balance = StickyBalance(len(ordered), readers)
        unowned = []
        for topic_partition in _topic_partitions(members, counts):
            if topic_partition in owners:
                balance.give(topic_partition, number_of[owners[topic_partition]])
            else:
                unowned.append(topic_partition)
        # First what few may read: the others even it out.
        unowned.sort(key=lambda topic_partition: len(readers[topic_partition.topic]))
        for topic_partition in unowned:
            balance.give_to_least(topic_partition)
        balance.level()
        return {member_id: balance.share(number) for member_id, number in number_of.items()}


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


def _readers(ordered: Sequence[Candidate], counts: Mapping[str, int]) -> dict[str, Sequence[int]]:
    """Who subscribed to each topic, as indexes into ``ordered``.

    Topics that the same members subscribed to share one list: mostly that is all topics.
    """
    by_subscription: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, member in enumerate(ordered):
        by_subscription[member.topics].append(index)
    shared: dict[frozenset[frozenset[str]], list[int]] = {}
    found: dict[str, Sequence[int]] = {}
    for topic in counts:
        subscriptions = frozenset(topics for topics in by_subscription if topic in topics)
        if subscriptions not in shared:
            shared[subscriptions] = sorted(
                index for topics in subscriptions for index in by_subscription[topics]
            )
        found[topic] = shared[subscriptions]
    return found


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
