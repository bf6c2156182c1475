"""ConsumerGroupDescribe: groups of the new protocol as their coordinator sees them.

What is told is committed: a description waits for the last write of its group, as heartbeats do.
Source: docs/spec/consumer-groups.md §1.2, C10 and C11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        found: dict[str, DescribedGroup] = {}

        def begin(end: Callable[[], None]) -> None:
            def described(name: str, group: DescribedGroup) -> None:
                found[name] = group
                if request.include_authorized_operations and not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
                if len(found) == len(names):
                    end()
                    groups = [found[name] for name in names]
                    respond(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups))

            if not names:
                end()
                respond(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[]))
            self._scheduler.run(names, lambda name: self._describe(name, described))

        self._scheduler.one_at_a_time(begin)

    def _describe(self, name: str, described: Callable[[str, DescribedGroup], None]) -> None:
        group = self._registry.groups.get(name)
        if not isinstance(group, ConsumerGroup):
            described(name, self._absent(name))
            return
        result = undescribed(name, ErrorCode.NONE)

        def settled(code: ErrorCode) -> None:
            described(name, undescribed(name, code) if code else result)

        def filled() -> None:
            self._writes.when_committed(group, settled)

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
        self, result: DescribedGroup, group: ConsumerGroup, then: Callable[[], None]
    ) -> Steps[None]:
        """The group as it is when its members are gone through, some in each turn."""
        result.group_state = group.state_name
        result.group_epoch = group.epoch
        result.assignment_epoch = group.assignment_epoch
        result.assignor_name = chosen_assignor(group, self._config.assignor_names).name
        members, turn = [], Turn()
        for member in list(group.consumers.values()):
            members.append(self._member(group, member))
            if turn.is_over(1 + len(member.current.assigned)):
                yield
        result.members = members
        then()

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
