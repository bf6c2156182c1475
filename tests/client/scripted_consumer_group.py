"""A scripted coordinator of one group of the consumer protocol, with the real reconciliation.

It notes what a member must never do, loses answers on request, and answers with chosen codes.
Source: docs/spec/consumer-groups.md §2.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from barnabas.coordinator.consumer_groups.current_assignment import (
    CurrentAssignment,
    Reconciliation,
    TopicIdPartition,
    reconcile,
)
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import metadata, offset_commit, offset_fetch
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from .scripted_broker import Answer
from .scripted_cluster import ScriptedCluster

INTERVAL_MS = 20
_JOIN, _LEAVE, _LEAVE_FOR_A_WHILE = 0, -1, -2


@dataclass
class Joined:
    """A member as the coordinator sees it."""

    names: frozenset[str] = frozenset()
    regex: str | None = None
    instance_id: str | None = None
    target: frozenset[TopicIdPartition] = frozenset()
    current: CurrentAssignment = field(default_factory=CurrentAssignment)


class ScriptedConsumerGroup:
    """Every broker knows the group; only the coordinator serves it."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.members: dict[str, Joined] = {}
        self.epoch = 0
        self.codes: dict[ApiKey, list[int]] = defaultdict(list)
        """By request, the codes to answer with before it is served."""
        self.heartbeats: list[tuple[int, ConsumerGroupHeartbeatRequest, int]] = []
        """At which broker, what was said, and the code of the answer."""
        self.commits: list[tuple[int, int]] = []
        """Epoch and code of each commit."""
        self.lost_answers = 0
        """So many heartbeats are served, and the connection ends before their answers."""
        self.mistakes: list[str] = []
        """What members did that a coordinator would refuse."""
        self.ids: dict[str, bytes] = {}
        """Ids of topics; a topic has another one when it is made anew."""
        self.unknown_ids: set[bytes] = set()
        """Ids that no broker can name yet."""
        self.matches: Callable[[str, str], bool] = lambda regex, name: name.startswith(regex)
        for number, broker in cluster.brokers.items():
            broker.answers = {
                **broker.answers,
                ApiKey.METADATA: self._answer_metadata,
                ApiKey.CONSUMER_GROUP_HEARTBEAT: self._at(number, self._answer_heartbeat),
                ApiKey.OFFSET_COMMIT: self._at(number, self._answer_commit),
                ApiKey.OFFSET_FETCH: self._at(number, self._answer_fetch),
            }

    def id_of(self, topic: str) -> bytes:
        """The id of a topic, made from its name the first time."""
        return self.ids.setdefault(topic, hashlib.md5(topic.encode()).digest())

    def said(self, *, code: int = 0) -> list[ConsumerGroupHeartbeatRequest]:
        """The heartbeats that were answered with this code."""
        return [request for _, request, answered in self.heartbeats if answered == code]

    def bump(self) -> None:
        """A new epoch: partitions are shared out anew, in the order of ids, name by name."""
        self.epoch += 1
        shares: dict[str, set[TopicIdPartition]] = {name: set() for name in self.members}
        for topic in sorted({place.topic for place in self.cluster.leaders}):
            who = sorted(name for name, member in self.members.items() if self._has(member, topic))
            places = sorted(place for place in self.cluster.leaders if place.topic == topic)
            for index, place in enumerate(places) if who else ():
                name = who[index * len(who) // len(places)]
                shares[name].add((self.id_of(topic), place.partition))
        for name, member in self.members.items():
            member.target = frozenset(shares[name])

    def fence(self, member_id: str) -> None:
        """Go on without a member, as when its session is over."""
        del self.members[member_id]
        self.bump()

    def _has(self, member: Joined, topic: str) -> bool:
        is_matched = member.regex is not None and self.matches(member.regex, topic)
        return topic in member.names or is_matched

    def _at(self, number: int, answer: Callable[[int, Any, int], Any]) -> Answer:
        return lambda request, version: answer(number, request, version)

    def _code(self, number: int, key: ApiKey) -> int:
        if number != self.cluster.coordinator:
            return ErrorCode.NOT_COORDINATOR
        return self.codes[key].pop(0) if self.codes[key] else 0

    # Heartbeats.

    def _answer_heartbeat(
        self, number: int, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> ConsumerGroupHeartbeatResponse:
        self._note_mistakes(request, version)
        code = self._code(number, ApiKey.CONSUMER_GROUP_HEARTBEAT) or self._refusal(request)
        self.heartbeats.append((number, request, code))
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        if request.member_epoch < _JOIN:
            self._leave(request)
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        answer = self._served(request)
        if self.lost_answers:
            self.lost_answers -= 1
            raise ConnectionResetError("an answer is lost")
        return answer

    def _note_mistakes(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        wrong = {
            "version": version != 1,
            "no member id": not request.member_id,
            "a join without a time-out": request.member_epoch == _JOIN
            and request.rebalance_timeout_ms <= 0,
            "a join that does not own nothing": request.member_epoch == _JOIN
            and (request.topic_partitions is None or len(request.topic_partitions) > 0),
            "a join without a subscription": request.member_epoch == _JOIN
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None,
            "away without an instance id": request.member_epoch == _LEAVE_FOR_A_WHILE
            and request.instance_id is None,
        }
        self.mistakes += [what for what, is_wrong in wrong.items() if is_wrong]

    def _refusal(self, request: ConsumerGroupHeartbeatRequest) -> int:
        member = self.members.get(request.member_id)
        if request.member_epoch == _JOIN:
            return 0
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        current = member.current
        owned = _ids(request.topic_partitions)
        is_late = (
            request.member_epoch == current.previous_member_epoch
            and owned is not None
            and owned <= current.assigned.keys()
        )
        is_known = request.member_epoch in (current.member_epoch, _LEAVE, _LEAVE_FOR_A_WHILE)
        return 0 if is_known or is_late else ErrorCode.FENCED_MEMBER_EPOCH

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch == _LEAVE:
            self.fence(request.member_id)

    def _served(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self.members.setdefault(request.member_id, Joined())
        before = (member.names, member.regex)
        if request.subscribed_topic_names is not None:
            member.names = frozenset(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            member.regex = request.subscribed_topic_regex or None
        has_changed = before != (member.names, member.regex)
        if has_changed:
            self.bump()
        was = member.current
        member.current = reconcile(was, self._step(request, member, has_changed))
        is_told = (
            request.member_epoch == _JOIN
            or request.topic_partitions is not None
            or member.current.assigned.keys() != was.assigned.keys()
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=_assignment(member.current.assigned) if is_told else None,
        )

    def _step(
        self, request: ConsumerGroupHeartbeatRequest, member: Joined, has_changed: bool
    ) -> Reconciliation:
        target: dict[bytes, tuple[int, ...]] = defaultdict(tuple)
        for topic_id, partition in sorted(member.target):
            target[topic_id] += (partition,)
        others = [other.current for other in self.members.values() if other is not member]
        topics = {place.topic for place in self.cluster.leaders}
        return Reconciliation(
            target_epoch=self.epoch,
            target=target,
            subscribed={self.id_of(topic) for topic in topics if self._has(member, topic)},
            has_subscription_changed=has_changed,
            owned=_ids(request.topic_partitions),
            is_held_by_another=lambda place: any(
                place in other.assigned or place in other.revoking for other in others
            ),
        )

    # Offsets and topics.

    def _answer_commit(self, number: int, request: Any, version: int) -> Any:
        code = self._code(number, ApiKey.OFFSET_COMMIT)
        code = code or self._epoch_refusal(request.member_id, request.generation_id_or_member_epoch)
        self.commits.append((request.generation_id_or_member_epoch, code))
        self.cluster.coordinator_codes = [code] if code else []
        answer: offset_commit.OffsetCommitResponse = self.cluster.answer_commit(request, version)
        return answer

    def _answer_fetch(self, number: int, request: Any, version: int) -> Any:
        code = self._code(number, ApiKey.OFFSET_FETCH)
        if version < 8:
            self.cluster.coordinator_codes = [code] if code else []
            return self.cluster.answer_fetch_committed(request, version)
        asked = request.groups[0]
        code = code or self._epoch_refusal(asked.member_id, asked.member_epoch)
        self.cluster.coordinator_codes = [code] if code else []
        found = self.cluster.answer_fetch_committed(asked, version)
        return offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.GroupResult(
                    group_id=asked.group_id,
                    topics=[] if code else found.topics,
                    error_code=found.error_code,
                )
            ]
        )

    def _epoch_refusal(self, member_id: str | None, epoch: int) -> int:
        if epoch < 0:
            return ErrorCode.UNKNOWN_MEMBER_ID if member_id else 0
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_stale = epoch != member.current.member_epoch
        return ErrorCode.STALE_MEMBER_EPOCH if is_stale else 0

    def _answer_metadata(self, request: Any, version: int) -> metadata.MetadataResponse:
        by_id = {self.id_of(place.topic): place.topic for place in self.cluster.leaders}
        for topic in request.topics or ():
            if topic.name is None:
                known = topic.topic_id in by_id and topic.topic_id not in self.unknown_ids
                topic.name = by_id[topic.topic_id] if known else ""
        answer = self.cluster.answer_metadata(request, version)
        for result in answer.topics:
            if result.name:
                result.topic_id = self.id_of(result.name)
            else:
                result.name, result.error_code = None, ErrorCode.UNKNOWN_TOPIC_ID
        return answer


def _ids(topics: Iterable[TopicPartitions] | None) -> set[TopicIdPartition] | None:
    if topics is None:
        return None
    return {(topic.topic_id, partition) for topic in topics for partition in topic.partitions}


def _assignment(places: Iterable[TopicIdPartition]) -> Assignment:
    topics: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(places):
        topics[topic_id].append(partition)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=found)
            for topic_id, found in topics.items()
        ]
    )
