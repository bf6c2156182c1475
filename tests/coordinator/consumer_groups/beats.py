"""Members of consumer groups at a coordinator in memory: heartbeats in, what they are told out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.coordinator.consumer_groups.consumer_group import ConsumerGroup
from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tests.coordinator.coordinator_harness import CALLER, CODES, Asked, CoordinatorHarness, topic_id

Told = tuple[int, Any]
"""Epoch and assignment: a set of partitions of "t", None where nothing is said of it."""


class Beats:
    """Heartbeats to one group; topic "t" has 6 partitions, "u" 4."""

    def __init__(self, harness: CoordinatorHarness, group: str = "g") -> None:
        self.harness = harness
        self.group_id = group
        harness.topics.counts.update(t=6, u=4)

    @property
    def group(self) -> ConsumerGroup:
        group = self.harness.group(self.group_id)
        assert isinstance(group, ConsumerGroup)
        check(group)
        return group

    @property
    def shown(self) -> tuple[str, int, int]:
        """State, epoch of the group, epoch of the target."""
        group = self.group
        return group.state_name, group.epoch, group.assignment_epoch

    def send(
        self,
        member: str,
        epoch: int,
        owned: Iterable[int] | Mapping[str, Iterable[int]] | None = None,
        *,
        version: int = 1,
        caller: Caller = CALLER,
        **fields: Any,
    ) -> Asked:
        if owned is not None and not isinstance(owned, Mapping):
            owned = {"t": owned} if list(owned) else {}
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group_id", self.group_id),
            member_id=member,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [
                TopicPartitions(topic_id=topic_id(name), partitions=list(found))
                for name, found in owned.items()
            ],
            **fields,
        )
        return self.harness.ask("consumer_group_heartbeat", request, version, caller=caller)

    def beat(self, member: str, epoch: int, owned: Any = None, **fields: Any) -> Told:
        """What a member is told that is not refused."""
        asked = self.send(member, epoch, owned, **fields)
        assert asked.code is ErrorCode.NONE, (asked.code, asked.answer.error_message)
        self.check()
        return asked.answer.member_epoch, assigned(asked)

    def refused(self, member: str, epoch: int, owned: Any = None, **fields: Any) -> ErrorCode:
        """The code that a member is refused with."""
        asked = self.send(member, epoch, owned, **fields)
        self.check()
        return CODES[asked.answer.error_code]

    def join(self, member: str, topics: Sequence[str] | None = ("t",), **fields: Any) -> Told:
        """A heartbeat of epoch 0."""
        fields.setdefault("rebalance_timeout_ms", 300_000)
        return self.beat(member, 0, (), subscribed_topic_names=topics, **fields)

    def check(self) -> None:
        """C12."""
        group = self.harness.coordinator.registry.groups.get(self.group_id)
        if isinstance(group, ConsumerGroup):
            check(group)


def check(group: ConsumerGroup) -> None:
    """A partition is held by one member at most, and the index of holders says by whom (C12).

    Who speaks the classic protocol is counted.
    """
    held = [
        (partition, member.member_id)
        for member in group.consumers.values()
        for partition in (*member.current.assigned, *member.current.revoking)
    ]
    assert len(held) == len({partition for partition, _ in held})
    assert group.holders == dict(held)
    assert group.classic_count == sum(member.is_classic for member in group.consumers.values())


def assigned(asked: Asked) -> Any:
    """Partitions of "t" as a set; with other topics a set of names and partitions."""
    assignment = asked.answer.assignment
    if assignment is None:
        return None
    found = {
        (bytes(topic.topic_id).rstrip(b"\0").decode(), partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    }
    if all(name == "t" for name, _ in found):
        return {partition for _, partition in found}
    return found
