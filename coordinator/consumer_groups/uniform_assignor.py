"""The assignor ``uniform``: as even as can be, and of what members have as little moved as can be.

Where all subscribe to the same, nobody gets two partitions more than another. Where subscriptions
differ, partitions go to the least loaded subscriber, and move while that evens the load out.

Partitions of all topics are numbered through, topics by name::

    topic    a       b             c
    number   0 1 2   3 4 5 6       7 8

Source: docs/spec/consumer-groups.md §3, C34 to C39; Kafka's UniformAssignor (4.x).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, compress
from typing import Final

from barnabas.coordinator.cooperative import Steps, Turn

from .assignor import (
    LOOKUPS_A_STEP,
    Assignment,
    GroupSubscription,
    MemberSubscription,
    SubscribedTopic,
    Target,
    by_name,
)

BALANCE_ROUNDS_MAX: Final = 16
"""Rounds in which partitions are moved between members whose subscriptions differ."""


class UniformAssignor:
    """Even and sticky."""

    name = "uniform"

    def assign(self, group: GroupSubscription) -> Steps[Target]:
        """Deal out what nobody has, and take from who has more than his share."""
        members = sorted(group.members, key=lambda member: member.member_id)
        numbering = _Numbering(by_name(group.topics))
        if not members:
            return {}
        shares: Iterable[list[int]]
        if group.is_homogeneous:
            shares = yield from _homogeneous(members, numbering)
        else:
            shares = yield from _Heterogeneous(numbering).assign(members)
        found: Target = {}
        turn = Turn()
        for member, share in zip(members, shares, strict=True):
            found[member.member_id] = numbering.assignment(share)
            if turn.is_over(1 + len(share)):
                yield
        return found


class _Numbering:
    """Numbers for the partitions of all topics, and the way back."""

    def __init__(self, topics: Sequence[SubscribedTopic]) -> None:
        self.topics = topics
        self.starts: list[int] = []
        self.count = 0
        self._by_id: dict[bytes, tuple[int, int]] = {}
        for topic in topics:
            self.starts.append(self.count)
            self._by_id[topic.topic_id] = (self.count, topic.partitions)
            self.count += topic.partitions

    def kept(self, member: MemberSubscription) -> list[int]:
        """What the member has of topics that it subscribes to and partitions that exist."""
        found = []
        for topic_id, partitions in member.target.items():
            if topic_id in member.topic_ids and topic_id in self._by_id:
                start, count = self._by_id[topic_id]
                found += [start + index for index in partitions if index < count]
        found.sort()
        return found

    def numbers(self, topic_index: int) -> range:
        """All partitions of one topic."""
        start = self.starts[topic_index]
        return range(start, start + self.topics[topic_index].partitions)

    def topic_index(self, number: int) -> int:
        """Which topic a number is of."""
        return bisect_right(self.starts, number) - 1

    def assignment(self, share: Iterable[int]) -> Assignment:
        """Numbers as partitions by topic id."""
        found: dict[bytes, list[int]] = {}
        for number in sorted(share):
            index = self.topic_index(number)
            found.setdefault(self.topics[index].topic_id, []).append(number - self.starts[index])
        return {topic_id: tuple(partitions) for topic_id, partitions in found.items()}


def _homogeneous(
    members: Sequence[MemberSubscription], numbering: _Numbering
) -> Steps[list[list[int]]]:
    """Quotas of N // M, and one more for N % M members: who has one more keeps it (KAFKA-18688)."""
    quota, extras = divmod(numbering.count, len(members))
    held, free = yield from _held_and_free(members, numbering)
    shares: list[list[int]] = []
    unfilled: list[tuple[list[int], int]] = []
    turn = Turn()
    for index, had in enumerate(held):
        has_extra = extras > 0
        size = quota + has_extra
        share = had[:size]
        free += had[size:]
        if has_extra and len(share) < size and len(members) - index > extras:
            # members that come later may have one more already: it is theirs to keep
            size, has_extra = quota, False
        extras -= has_extra
        shares.append(share)
        if len(share) < size:
            unfilled.append((share, size - len(share)))
        if turn.is_over(1 + len(share)):
            yield
    start = 0
    for share, lacking in unfilled:
        share += free[start : start + lacking]
        start += lacking
        if turn.is_over(1 + lacking):
            yield
    assert start == len(free), f"{len(free) - start} partitions are left over"
    return shares


class _Heterogeneous:
    """Members that subscribe to different topics."""

    def __init__(self, numbering: _Numbering) -> None:
        self._numbering = numbering
        self._subscribers: list[list[int]] = [[] for _ in numbering.topics]
        """Indexes of members, by index of the topic."""
        self._shares: list[dict[int, list[int]]] = []
        """By member the numbers it has of each topic, ascending."""
        self._loads: list[int] = []
        self._free = bytearray(b"\1") * numbering.count

    def assign(self, members: Sequence[MemberSubscription]) -> Steps[Iterable[list[int]]]:
        """Let members keep what they may, give out what is free, then even the load out."""
        yield from self._read(members)
        order = sorted(
            (index for index, found in enumerate(self._subscribers) if found), key=self._rank
        )
        yield from self._give_out(order)
        for _ in range(BALANCE_ROUNDS_MAX):
            has_moved = yield from self._even_out(order)
            if not has_moved:
                break
        return (list(chain.from_iterable(share.values())) for share in self._shares)

    def _read(self, members: Sequence[MemberSubscription]) -> Steps[None]:
        indexes = {topic.topic_id: index for index, topic in enumerate(self._numbering.topics)}
        turn = Turn()
        for member_index, member in enumerate(members):
            for topic_id in member.topic_ids:
                if topic_id in indexes:
                    self._subscribers[indexes[topic_id]].append(member_index)
            kept = self._numbering.kept(member)
            self._keep(kept)
            if turn.is_over(1 + len(kept) + len(member.topic_ids) // LOOKUPS_A_STEP):
                yield

    def _give_out(self, order: Sequence[int]) -> Steps[None]:
        turn = Turn()
        for topic_index in order:
            free = [number for number in self._numbering.numbers(topic_index) if self._free[number]]
            takers = self._least_loaded(topic_index) if free else ()
            for member, number in zip(takers, free, strict=False):
                self._give(member, topic_index, number)
                if turn.is_over():
                    yield
            if turn.is_over(1 + len(self._subscribers[topic_index]) // LOOKUPS_A_STEP):
                yield

    def _even_out(self, order: Sequence[int]) -> Steps[bool]:
        """One round over all topics; whether anything has moved."""
        has_moved = False
        turn = Turn()
        for topic_index in order:
            subscribers = self._subscribers[topic_index]
            for _ in self._moves(topic_index, subscribers) if len(subscribers) > 1 else ():
                has_moved = True
                if turn.is_over():
                    yield
            if turn.is_over(1 + len(subscribers) // LOOKUPS_A_STEP):
                yield
        return has_moved

    def _keep(self, numbers: list[int]) -> None:
        share: dict[int, list[int]] = {}
        load = 0
        for number in numbers:
            if self._free[number]:  # of two that claim it one has it
                self._free[number] = 0
                share.setdefault(self._numbering.topic_index(number), []).append(number)
                load += 1
        self._shares.append(share)
        self._loads.append(load)

    def _rank(self, topic_index: int) -> tuple[float, int, str]:
        """Topics with most partitions a subscriber first: they leave least choice."""
        topic, subscribers = self._numbering.topics[topic_index], self._subscribers[topic_index]
        return -topic.partitions / len(subscribers), len(subscribers), topic.name

    def _least_loaded(self, topic_index: int) -> Iterator[int]:
        """Who gets the next partition, without an end: all up to the load of the next, in turns."""
        waiting = sorted(self._subscribers[topic_index], key=lambda member: self._loads[member])
        levels = [self._loads[member] for member in waiting]
        level, count = levels[0], 0
        while True:
            while count < len(waiting) and levels[count] <= level:
                count += 1
            yield from waiting[:count]
            level += 1

    def _give(self, member: int, topic_index: int, number: int) -> None:
        share = self._shares[member].setdefault(topic_index, [])
        insort(share, number)
        self._loads[member] += 1

    def _moves(self, topic_index: int, subscribers: Sequence[int]) -> Iterator[None]:
        """Move partitions of this topic from the most to the least loaded; ends when it is even.

        Of equals the last member gives and the first one takes. Entries of the heaps whose load is
        no longer the member's are left over from before.
        """
        loads, shares = self._loads, self._shares
        givers = [one for one in subscribers if shares[one].get(topic_index)]
        if (
            not givers
            or max(loads[one] for one in givers) - min(loads[one] for one in subscribers) <= 1
        ):
            return  # as most topics are, in most rounds: no heaps for them
        most = [(-loads[one], -one) for one in givers]
        least = [(loads[one], one) for one in subscribers]
        heapify(most)
        heapify(least)
        while most:
            load, giver = -most[0][0], -most[0][1]
            if load != loads[giver] or not shares[giver].get(topic_index):
                heappop(most)
                continue
            taker = least[0][1]
            if least[0][0] != loads[taker]:
                heappop(least)
                continue
            if load - loads[taker] <= 1:
                return
            number = shares[giver][topic_index].pop()
            loads[giver] -= 1
            self._give(taker, topic_index, number)
            for one in (giver, taker):
                heappush(most, (-loads[one], -one))
                heappush(least, (loads[one], one))
            yield


def _held_and_free(
    members: Sequence[MemberSubscription], numbering: _Numbering
) -> Steps[tuple[list[list[int]], list[int]]]:
    """What each member has, and what nobody has; of two that claim one, the first keeps it."""
    is_free = bytearray(b"\1") * numbering.count
    held = []
    turn = Turn()
    for member in members:
        kept = [number for number in numbering.kept(member) if is_free[number]]
        for number in kept:
            is_free[number] = 0
        held.append(kept)
        if turn.is_over(1 + len(kept)):
            yield
    return held, list(compress(range(numbering.count), is_free))
