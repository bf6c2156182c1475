"""A consumer group to its records in the offsets topic, and back.

A record is always made from what the group is when it is written, so that a key may be written
again at any time: a write that failed leaves keys behind (group_writes.py), not values.
Source: docs/spec/consumer-groups.md §4, C44 to C51.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.protocol import consumer_group_records as records
from barnabas.protocol.consumer_group_records import (
    ConsumerGroupKey,
    RecordType,
    consumer_group_key,
    consumer_group_value,
    parse_consumer_group_value,
)

from .assignor import Assignment
from .consumer_group import FIRST_EPOCH, ConsumerGroup, ResolvedRegex
from .current_assignment import CurrentAssignment, Held, MemberState
from .member import ClassicMetadata, ConsumerMember, MemberProfile

if TYPE_CHECKING:
    from barnabas.coordinator.group_registry import GroupTerm
    from barnabas.coordinator.offsets_journal import Entry

Raw: TypeAlias = dict[tuple[RecordType, str], tuple[int, bytes]]
"""The last records of one group: offset and value by type and member id or expression."""

_NO_PARTITIONS: Final = records.TargetAssignmentMember(topic_partitions=())


# -- writing -----------------------------------------------------------------------------------


def value_of(group: ConsumerGroup, key: ConsumerGroupKey) -> bytes | None:
    """What the record of a key says now; None, a tombstone, for what is not there."""
    message = _message_of(group, key)
    return None if message is None else consumer_group_value(message)


def group_tombstones(group: ConsumerGroup) -> list[Entry]:
    """All that is left of a group without members, deleted (C45, C97)."""
    pending = () if group.last_write is None else group.last_write.keys
    keys = dict.fromkeys((*pending, *group.keys()))
    return [*group.foreign_keys, *((consumer_group_key(*key), None) for key in keys)]


def _message_of(group: ConsumerGroup, key: ConsumerGroupKey) -> Any:
    match key.type:
        case RecordType.GROUP_METADATA:
            return records.GroupMetadata(epoch=group.epoch, metadata_hash=group.metadata_hash)
        case RecordType.TARGET_ASSIGNMENT_METADATA:
            return records.TargetAssignmentMetadata(
                assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_ms
            )
        case RecordType.REGULAR_EXPRESSION:
            return _regex_message(group.resolved.get(key.name))
        case RecordType.PARTITION_METADATA:
            return None
        case _:
            return _member_message(group, key)


def _member_message(group: ConsumerGroup, key: ConsumerGroupKey) -> Any:
    member = group.consumers.get(key.name)
    if member is None:
        return None
    if key.type is RecordType.MEMBER_METADATA:
        return _profile_message(member.profile)
    if key.type is RecordType.CURRENT_MEMBER_ASSIGNMENT:
        return _current_message(member.current)
    target = group.targets.get(key.name)
    return None if target is None else _target_message(target)


def _regex_message(resolved: ResolvedRegex | None) -> Any:
    if resolved is None:
        return None
    return records.RegularExpression(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.time_ms
    )


def _profile_message(profile: MemberProfile) -> records.MemberMetadata:
    classic = profile.classic
    return records.MemberMetadata(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.names),
        subscribed_topic_regex=profile.regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.assignor,
        classic_member_metadata=None
        if classic is None
        else records.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                records.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )


def _target_message(target: Assignment) -> records.TargetAssignmentMember:
    if not target:
        return _NO_PARTITIONS
    return records.TargetAssignmentMember(
        topic_partitions=[
            records.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in target.items()
        ]
    )


def _current_message(current: CurrentAssignment) -> records.CurrentMemberAssignment:
    return records.CurrentMemberAssignment(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=int(current.state),
        assigned_partitions=_held_messages(current.assigned),
        partitions_pending_revocation=_held_messages(current.revoking),
    )


def _held_messages(held: Held) -> list[records.AssignedTopicPartitions]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(held):
        by_topic.setdefault(topic_id, []).append(partition)
    return [
        records.AssignedTopicPartitions(
            topic_id=topic_id,
            partitions=partitions,
            assignment_epochs=[held[topic_id, partition] for partition in partitions],
        )
        for topic_id, partitions in by_topic.items()
    ]


# -- reading -----------------------------------------------------------------------------------


def group_of(group_id: str, raw: Raw, term: GroupTerm, now_ms: int) -> ConsumerGroup:
    """The group that its last records amount to, whatever is missing of them (C48).

    Raises CorruptRequest for a value that cannot be read (C51). Since when it is empty is not
    told by its records: ``now_ms`` keeps its offsets a retention longer, and never shorter (C60).
    """
    read = {key: _parsed(key[0], value) for key, (_, value) in raw.items()}
    group = ConsumerGroup(group_id, term, since_ms=now_ms)
    _read_members(group, read)
    _read_epochs(group, read)
    _read_targets(group, read)
    for (record_type, name), message in read.items():
        if record_type is RecordType.REGULAR_EXPRESSION:
            if name in group.regexes:
                topics = frozenset(message.topics)
                # which metadata a node had under a number means nothing to another one
                group.resolved[name] = ResolvedRegex(topics, -1, message.timestamp)
            else:
                group.dirty[group.key(record_type, name)] = None
        elif record_type is RecordType.PARTITION_METADATA:
            group.dirty[group.key(record_type)] = None
    if (RecordType.GROUP_METADATA, "") not in read:
        group.dirty[group.key(RecordType.GROUP_METADATA)] = None
    group.note_subscribed()
    return group


_CLASSES: Final[Mapping[RecordType, type[Any]]] = {
    RecordType.GROUP_METADATA: records.GroupMetadata,
    RecordType.MEMBER_METADATA: records.MemberMetadata,
    RecordType.TARGET_ASSIGNMENT_METADATA: records.TargetAssignmentMetadata,
    RecordType.TARGET_ASSIGNMENT_MEMBER: records.TargetAssignmentMember,
    RecordType.CURRENT_MEMBER_ASSIGNMENT: records.CurrentMemberAssignment,
    RecordType.REGULAR_EXPRESSION: records.RegularExpression,
}


def _parsed(record_type: RecordType, value: bytes) -> Any:
    if record_type is RecordType.PARTITION_METADATA:
        return None  # of Kafka 4.0 and before, which nobody reads any more
    return parse_consumer_group_value(_CLASSES[record_type], value)


def _read_epochs(group: ConsumerGroup, read: Mapping[tuple[RecordType, str], Any]) -> None:
    metadata = read.get((RecordType.GROUP_METADATA, ""))
    target = read.get((RecordType.TARGET_ASSIGNMENT_METADATA, ""))
    epochs = [member.epoch for member in group.consumers.values()]
    if target is not None:
        group.assignment_epoch = max(target.assignment_epoch, FIRST_EPOCH)
        group.assignment_ms = max(target.assignment_timestamp, 0)
    if metadata is not None:
        epochs.append(metadata.epoch)
        group.metadata_hash = metadata.metadata_hash
    group.epoch = max(FIRST_EPOCH, group.assignment_epoch, *epochs)


def _read_members(group: ConsumerGroup, read: Mapping[tuple[RecordType, str], Any]) -> None:
    """Those with the highest epochs first: they keep what two of them hold (C49)."""
    members = []
    for (record_type, name), message in read.items():
        if record_type is RecordType.MEMBER_METADATA:
            current = read.get((RecordType.CURRENT_MEMBER_ASSIGNMENT, name))
            state = CurrentAssignment() if current is None else _current(current)
            members.append(ConsumerMember(name, _profile(message), state))
        elif record_type in _OF_A_MEMBER and (RecordType.MEMBER_METADATA, name) not in read:
            group.dirty[group.key(record_type, name)] = None
    members.sort(key=lambda member: (-member.epoch, member.member_id))
    for member in members:
        _take_from(group, member)
        group.put(member)


_OF_A_MEMBER: Final = frozenset(
    {RecordType.CURRENT_MEMBER_ASSIGNMENT, RecordType.TARGET_ASSIGNMENT_MEMBER}
)


def _take_from(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Leave a member nothing that another one holds already; it has to come again (C49)."""
    current = member.current
    held = (*current.assigned, *current.revoking)
    contested = {partition for partition in held if partition in group.holders}
    if not contested:
        return
    member.is_fenced = True
    member.current = CurrentAssignment(
        current.member_epoch,
        current.previous_member_epoch,
        MemberState.UNRELEASED_PARTITIONS,
        {found: epoch for found, epoch in current.assigned.items() if found not in contested},
        {found: epoch for found, epoch in current.revoking.items() if found not in contested},
    )
    group.dirty[group.key(RecordType.CURRENT_MEMBER_ASSIGNMENT, member.member_id)] = None


def _read_targets(group: ConsumerGroup, read: Mapping[tuple[RecordType, str], Any]) -> None:
    for (record_type, name), message in read.items():
        if record_type is RecordType.TARGET_ASSIGNMENT_MEMBER and name in group.consumers:
            group.targets[name] = {
                topic.topic_id: tuple(topic.partitions) for topic in message.topic_partitions
            }


def _profile(message: records.MemberMetadata) -> MemberProfile:
    classic = message.classic_member_metadata
    return MemberProfile(
        client_id=message.client_id,
        client_host=message.client_host,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        names=frozenset(message.subscribed_topic_names),
        regex=message.subscribed_topic_regex or None,
        assignor=message.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple((found.name, bytes(found.metadata)) for found in classic.supported_protocols),
        ),
    )


def _current(message: records.CurrentMemberAssignment) -> CurrentAssignment:
    epoch = message.member_epoch
    try:
        state = MemberState(message.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(
        epoch,
        message.previous_member_epoch,
        state,
        _held(message.assigned_partitions, epoch),
        _held(message.partitions_pending_revocation, epoch),
    )


def _held(topics: Iterable[records.AssignedTopicPartitions], epoch: int) -> Held:
    held: dict[tuple[bytes, int], int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(epoch, 0)] * len(topic.partitions)  # of a release before KIP-1251
        for partition, since in zip(topic.partitions, epochs, strict=True):
            held[topic.topic_id, partition] = since
    return held
