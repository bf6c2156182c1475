"""Balance of the cooperative-sticky assignor: unowned partitions are given out, then shares level.

Members are numbers, in the order in which they come first: of two with as many partitions, the
lower number gives first and gets first. A step costs the logarithm of the members, not a look at
all of them: the loop of the group's leader stands still meanwhile, heartbeats included.

Source: Kafka's CooperativeStickyAssignor (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain

from barnabas.client.topology import TopicPartition


class StickyBalance:
    """The shares of all members while partitions are given out and moved."""

    def __init__(self, members: int, readers: Mapping[str, Sequence[int]]) -> None:
        """``readers`` has the members of each topic, in order; topics may share a sequence."""
        self._sizes = [0] * members
        self._shares: list[dict[str, list[TopicPartition]]] = [{} for _ in range(members)]
        """By topic; in the order in which topics came, and partitions of each."""
        self._readers_of: dict[str, _Readers] = {}
        """By topic; the same object for all topics that share a sequence."""
        self._memberships: list[list[_Readers]] = [[] for _ in range(members)]
        """By member: all that it is in."""
        made: dict[int, _Readers] = {}
        for topic, numbers in readers.items():
            if id(numbers) not in made:
                made[id(numbers)] = _Readers(numbers, self._sizes)
                for member in numbers:
                    self._memberships[member].append(made[id(numbers)])
            self._readers_of[topic] = made[id(numbers)]

    def share(self, member: int) -> list[TopicPartition]:
        """What a member has now, sorted."""
        return sorted(chain.from_iterable(self._shares[member].values()))

    def give(self, topic_partition: TopicPartition, member: int) -> None:
        """Add a partition to the share of a member."""
        self._shares[member].setdefault(topic_partition.topic, []).append(topic_partition)
        self._sizes[member] += 1

    def give_to_least(self, topic_partition: TopicPartition) -> None:
        """Add a partition to the smallest share of those who read its topic."""
        self.give(topic_partition, self._readers_of[topic_partition.topic].least())

    def level(self) -> None:
        """Move partitions one by one, from the largest share that can give to the smallest.

        A share can give while a reader of one of its topics has two less. What cannot is not looked
        at again before its own size changes, or one of these readers shrinks far enough.
        """
        sizes = self._sizes
        sources = [(-size, member) for member, size in enumerate(sizes)]
        heapify(sources)
        while sources:
            size, source = heappop(sources)
            if -size != sizes[source]:
                continue  # its size changed since, and with that it came in again
            move = self._next_move(source)
            if move is None:
                for readers in {self._readers_of[topic] for topic in self._shares[source]}:
                    readers.note_stuck(source)
                continue
            topic, target = move
            self.give(self._taken(topic, source), target)
            unstuck = [readers.take_unstuck() for readers in self._memberships[source]]
            for member in (source, target, *unstuck):
                if member is not None:
                    heappush(sources, (-sizes[member], member))

    def _next_move(self, source: int) -> tuple[str, int] | None:
        """The topic of which a member can give a partition, and to whom."""
        for topic in self._shares[source]:
            target = self._readers_of[topic].least()
            if self._sizes[source] - self._sizes[target] > 1:
                return topic, target
        return None

    def _taken(self, topic: str, source: int) -> TopicPartition:
        """The last partition of a topic, out of a share."""
        share = self._shares[source]
        topic_partition = share[topic].pop()
        if not share[topic]:
            del share[topic]
        self._sizes[source] -= 1
        for readers in self._memberships[source]:
            readers.note_shrunk(source)
        return topic_partition


class _Readers:
    """The members that read some topics; finds the one with the smallest share.

    A heap of (size, member). Of each member one entry is never above its size: one that grew is
    mended when it comes to the top, one that shrank gets another entry. So the top, once it needs
    no mending, is the smallest of all.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self._stuck: list[tuple[int, int]] = []
        """A heap of (-size, member): they have partitions of these topics, and could give none."""
        self._heap: list[tuple[int, int]] = []
        self._rebuild()

    def least(self) -> int:
        """The first of the members with the fewest partitions."""
        heap, sizes = self._heap, self._sizes
        size, member = heap[0]
        while size != sizes[member]:
            heapreplace(heap, (sizes[member], member))
            size, member = heap[0]
        return member

    def note_shrunk(self, member: int) -> None:
        """The share of a member has become smaller."""
        heappush(self._heap, (self._sizes[member], member))
        # Entries of old sizes would add up where nobody looks at the top.
        if len(self._heap) > 2 * len(self._members):
            self._rebuild()

    def note_stuck(self, member: int) -> None:
        """A member could not give any of its partitions, some of these topics among them."""
        heappush(self._stuck, (-self._sizes[member], member))

    def take_unstuck(self) -> int | None:
        """The first of the stuck members if it can give now.

        Ask when one of these readers shrank. If the first cannot give, none behind it can. If it
        can, those behind it need not be looked at before it has given, and so shrunk itself.
        """
        stuck, sizes = self._stuck, self._sizes
        while stuck and -stuck[0][0] != sizes[stuck[0][1]]:
            heappop(stuck)  # its size changed since: it was looked at again, or will be
        if stuck and -stuck[0][0] - sizes[self.least()] > 1:
            return heappop(stuck)[1]
        return None

    def _rebuild(self) -> None:
        self._heap = [(self._sizes[member], member) for member in self._members]
        heapify(self._heap)
