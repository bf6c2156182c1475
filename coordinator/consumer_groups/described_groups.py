"""ConsumerGroupDescribe: groups of the new protocol as their coordinator sees them.

What is told is committed: a description waits for the last write of its group, as heartbeats do.
Source: docs/spec/consumer-groups.md §1.2, C10 and C11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.cooperative import CooperativeScheduler, Steps, Turn
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.ports import Caller
from barnabas.protocol.acl import GROUP_OPERATIONS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

from .consumer_group import DEAD, ConsumerGroup
from .current_assignment import TopicIdPartition
from .group_writes import GroupWrites
from .member import ConsumerMember
from .target_assignment import chosen_assignor
from .topic_catalog import TopicCatalog

Respond: TypeAlias = Callable[[ConsumerGroupDescribeResponse], None]

_CLASSIC_TYPE: Final = 0
_CONSUMER_TYPE: Final = 1

WAITING_MAX: Final = 50_000
"""Members and partitions of all descriptions that wait for commits outside of the queue: 40 MB."""


class ConsumerGroupDescriptions:
    """Serves ConsumerGroupDescribe."""

    def __init__(
        self,
        registry: GroupRegistry,
        writes: GroupWrites,
        catalog: TopicCatalog,
        config: CoordinatorConfig,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._registry = registry
        self._writes = writes
        self._catalog = catalog
        self._config = config
        self._scheduler = scheduler
        self.waiting_size = 0
        """Members and partitions of the descriptions that wait outside of the queue."""

    def describe(
        self,
        request: ConsumerGroupDescribeRequest,
        _version: int,
        _caller: Caller,
        respond: Respond,
    ) -> None:
        """Answer for each group by itself, in the order of the request, once all are known.

        Where there are rights, what the peer may do takes the place of all operations.
        """
        names = list(dict.fromkeys(request.group_ids))
        if not names:
            respond(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[]))
            return

        def answer(found: Mapping[str, DescribedGroup]) -> None:
            for group in found.values():
                if request.include_authorized_operations and not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
            groups = [found[name] for name in names]
            respond(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups))

        def begin(end: Callable[[], None]) -> None:
            description = _Description(self, len(names), end, answer)
            self._scheduler.run(names, lambda name: self._describe(name, description))

        self._scheduler.one_at_a_time(begin)

    def _describe(self, name: str, description: _Description) -> None:
        group = self._registry.groups.get(name)
        if not isinstance(group, ConsumerGroup):
            description.tell(name, self._absent(name))
            description.note_filled(0)
            return
        result = undescribed(name, ErrorCode.NONE)

        def settled(code: ErrorCode) -> None:
            description.tell(name, undescribed(name, code) if code else result)

        def filled(size: int) -> None:
            self._writes.when_committed(group, settled)
            description.note_filled(size)

        self._scheduler.drive(self._fill(result, group, filled))

    def _absent(self, name: str) -> DescribedGroup:
        if not name:
            return undescribed(name, ErrorCode.INVALID_GROUP_ID)
        if name not in self._registry.groups:
            code = self._registry.ownership_problem(name)
            damaged = None if code else self._registry.damaged(name)
            if damaged is not None and damaged.lacks_metadata(name):
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if code:
                return undescribed(name, code)
            return undescribed(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        message = f"Group {name} is not a consumer group."
        return undescribed(name, ErrorCode.GROUP_ID_NOT_FOUND, message)

    def _fill(
        self, result: DescribedGroup, group: ConsumerGroup, then: Callable[[int], None]
    ) -> Steps[None]:
        """The group as it is when its members are gone through, some in each turn.

        ``then`` is told of how many members and partitions.
        """
        result.group_state = group.state_name
        result.group_epoch = group.epoch
        result.assignment_epoch = group.assignment_epoch
        result.assignor_name = chosen_assignor(group, self._config.assignor_names).name
        members, turn, size = [], Turn(), 0
        for member in list(group.consumers.values()):
            members.append(self._member(group, member))
            steps = 1 + len(member.current.assigned)
            size += steps
            if turn.is_over(steps):
                yield
        result.members = members
        then(size)

    def _member(self, group: ConsumerGroup, member: ConsumerMember) -> Member:
        profile, current = member.profile, member.current
        target = [
            (topic_id, partition)
            for topic_id, partitions in group.targets.get(member.member_id, {}).items()
            for partition in partitions
        ]
        return Member(
            member_id=member.member_id,
            instance_id=profile.instance_id,
            rack_id=profile.rack_id,
            member_epoch=current.member_epoch,
            client_id=profile.client_id,
            client_host=profile.client_host,
            subscribed_topic_names=sorted(profile.names),
            subscribed_topic_regex=profile.regex or "",
            assignment=self._assignment((*current.assigned, *current.revoking)),
            target_assignment=self._assignment(target),
            member_type=_CLASSIC_TYPE if member.is_classic else _CONSUMER_TYPE,
        )

    def _assignment(self, held: Iterable[TopicIdPartition]) -> Assignment:
        """By topic; what has no name any more is left out (C10)."""
        topics: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(held):
            topics.setdefault(topic_id, []).append(partition)
        return Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=partitions)
                for topic_id, partitions in topics.items()
                if (name := self._catalog.name_of(topic_id)) is not None
            ]
        )


class _Description:
    """The groups of one request: in the queue while they are filled, and not while they wait.

    A partition whose replicas stand still keeps its groups waiting for
    ``offsets.commit.timeout.ms``, in which those of others have to be described. Where much waits
    already the place in the queue is kept: it is what bounds the memory of descriptions.
    """

    __slots__ = (
        "_all",
        "_answer",
        "_end",
        "_found",
        "_is_queued",
        "_size",
        "_unfilled",
        "_untold",
    )

    def __init__(
        self,
        descriptions: ConsumerGroupDescriptions,
        count: int,
        end: Callable[[], None],
        answer: Callable[[Mapping[str, DescribedGroup]], None],
    ) -> None:
        """``end`` gives the place in the queue back; ``answer`` is called when all are told."""
        self._all = descriptions
        self._unfilled = self._untold = count
        self._end = end
        self._answer = answer
        self._found: dict[str, DescribedGroup] = {}
        self._is_queued = True
        self._size = 0

    def note_filled(self, size: int) -> None:
        """One more group needs no turn any more; it may be told already."""
        self._unfilled -= 1
        self._size += size
        may_wait = self._all.waiting_size + self._size <= WAITING_MAX
        if self._untold and not self._unfilled and may_wait:
            self._is_queued = False
            self._all.waiting_size += self._size
            self._end()

    def tell(self, name: str, group: DescribedGroup) -> None:
        """This is what is told of one of them."""
        self._found[name] = group
        self._untold -= 1
        if self._untold:
            return
        if self._is_queued:
            self._end()
        else:
            self._all.waiting_size -= self._size
        self._answer(self._found)


def undescribed(name: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    """A group of which nothing is told, and why."""
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=name,
        group_state=DEAD if code is ErrorCode.GROUP_ID_NOT_FOUND else "",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
