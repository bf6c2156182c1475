"""Whether a member of a consumer group may commit what it asks for.

Source: docs/spec/consumer-groups.md §5, C58.
"""

from __future__ import annotations

from typing import Final

from barnabas.coordinator.group import Group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest

from .consumer_group import ConsumerGroup
from .topic_catalog import TopicCatalog

EPOCHS_SINCE: Final = 9
"""OffsetCommit: from this version on a generation may be a member epoch."""


def commit_problem(
    group: Group, request: OffsetCommitRequest, version: int, catalog: TopicCatalog
) -> ErrorCode:
    """What holds for all partitions of a request; NONE lets them pass."""
    assert isinstance(group, ConsumerGroup)
    member_id, epoch = request.member_id, request.generation_id_or_member_epoch
    member = group.consumers.get(member_id)
    if member is not None and not member.is_classic and epoch >= 0 and version < EPOCHS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    partitions = (
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    return group.partitions_problem(member_id, epoch, partitions, catalog)
