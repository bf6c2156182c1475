"""A member of a group of the consumer protocol: what its heartbeats say, and what answers mean.

Nothing here waits or asks: :class:`EpochConsumer` does. A heartbeat carries what has changed since
the last one that was answered; after one that failed all of it is said again, since nobody knows
what the coordinator has heard.

Source: docs/spec/consumer-groups.md §1 and §12; KIP-848, KIP-1082 (the member makes its id).
"""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from .consumer_config import ConsumerConfig
from .group_membership import MemberIdentity

TopicIdPartition = tuple[bytes, int]
"""A partition of the topic that has this id; another of the same name has another id."""
TopicIdPartitions = frozenset[TopicIdPartition]

_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
_NO_GENERATION: Final = -1
_FIRST_INTERVAL_S: Final = 5.0
"""Until a coordinator has said what it wants: its default."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the coordinator has been told, as far as we know."""

    names: frozenset[str]
    regex: str | None
    owned: TopicIdPartitions


class EpochMember:
    """Who we are in the group, at which epoch, and what the group wants us to have."""

    def __init__(self, group: str, config: ConsumerConfig) -> None:
        self.group = group
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        """Ours for as long as the process lives; the coordinator never gives another."""
        self.epoch = _JOIN
        """0 until the coordinator has answered a join."""
        self.is_out = False
        """Fenced, or left: nothing is ours, and no heartbeat is sent, before :meth:`rejoin`."""
        self.has_asked = False
        """A join was sent: there may be a member to leave."""
        self.target: TopicIdPartitions = frozenset()
        """All that we may own at this epoch."""
        self.interval_s = _FIRST_INTERVAL_S
        """Between heartbeats, as the coordinator wants it."""
        self.joined_as = MemberIdentity(self.member_id, _NO_GENERATION, config.group_instance_id)
        """Who we were when the group had us last."""
        self._config = config
        self._names: frozenset[str] = frozenset()
        self._regex: str | None = None
        self._had_regex = False
        """The coordinator may have an expression of ours that has to be dropped."""
        self._said: Said | None = None
        """None: nobody knows, so all of it is said."""

    @property
    def is_member(self) -> bool:
        """Whether the group has us, as far as we know."""
        return self.epoch > _JOIN and not self.is_out

    @property
    def identity(self) -> MemberIdentity:
        """For commits; the epoch is -1 while we are no member."""
        epoch = self.epoch if self.is_member else _NO_GENERATION
        return MemberIdentity(self.member_id, epoch, self._config.group_instance_id)

    def subscribe(self, names: Iterable[str], regex: str | None) -> None:
        """Say from the next heartbeat on that we want these topics, or those of an expression."""
        self._names, self._regex = frozenset(names), regex
        self._had_regex |= regex is not None

    def has_news(self, owned: TopicIdPartitions) -> bool:
        """Whether the next heartbeat has more to say than that we are alive."""
        return self._said != Said(self._names, self._regex, owned)

    def heartbeat(self, owned: TopicIdPartitions) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat of a member that has ``owned`` now; remembered as said.

        Call :meth:`forget_said` when no good answer comes.
        """
        assert not self.is_out, "a heartbeat of nobody"
        assert self.epoch > _JOIN or not owned, "joins with partitions of another membership"
        said, self._said = self._said, Said(self._names, self._regex, owned)
        self.has_asked = True
        request = self._request(self.epoch)
        if said is None:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.server_assignor = self._config.group_remote_assignor
        if said is None or said.names != self._names:
            request.subscribed_topic_names = sorted(self._names)
        if said is None or said.regex != self._regex:
            request.subscribed_topic_regex = self._regex or ("" if self._had_regex else None)
        if said is None or said.owned != owned:
            request.topic_partitions = by_topic(owned)
        return request

    def accept(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        """Take over a good answer: the epoch, the interval, the target where there is one."""
        self.epoch = answer.member_epoch
        self.interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self.target = frozenset(
                (topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )
        if self.epoch > _JOIN:
            self.joined_as = self.identity
        else:
            # Coordinators before 4.3 answer an epoch of 0 as long as the group has nothing to
            # assign: the next heartbeat is a join again, which has to be complete.
            self.forget_said()

    def forget_said(self) -> None:
        """Say everything with the next heartbeat: the last one may or may not have been heard."""
        self._said = None

    def drop_out(self) -> None:
        """The group goes on without us: we are fenced, or have left."""
        self.is_out = True
        self.target = frozenset()
        self.forget_said()

    def rejoin(self) -> None:
        """Join with the next heartbeat, as somebody who owns nothing; the id stays ours."""
        self.epoch, self.is_out = _JOIN, False
        self.forget_said()

    def farewell(self) -> ConsumerGroupHeartbeatRequest:
        """The last heartbeat: a static member keeps its partitions for as long as its session."""
        is_static = self._config.group_instance_id is not None
        return self._request(_LEAVE_FOR_A_WHILE if is_static else _LEAVE)

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )


def by_topic(partitions: Iterable[TopicIdPartition]) -> Sequence[TopicPartitions]:
    """Partitions as a heartbeat has them, in order."""
    topics: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        topics[topic_id].append(partition)
    return [
        TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()
    ]
