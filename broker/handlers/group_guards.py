"""What stands before the APIs of groups and their offsets.

Source: docs/spec/security.md §3 (the matrix).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from barnabas.coordinator import rebalance_responses
from barnabas.coordinator.consumer_groups import consumer_heartbeats, described_groups
from barnabas.protocol.acl import ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)

from .call import Answer, Call, Handler
from .cooperative import Turn
from .guards import (
    DELETE_GROUP,
    DENIED,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_ID,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    EntriesGuard,
    GuardContext,
    Steps,
    afterwards,
    changed,
    merged,
    served,
    split,
    visible,
    whole,
)

GROUP_CODE: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_CODE: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID_CODE: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_TOPIC: Final = "The group has described topic(s) that the client is not authorized to describe."
GROUP: Final = 0
TRANSACTION: Final = 1
"""Types of keys in FindCoordinator."""
KEYS_SINCE: Final = 4
"""FindCoordinator: from this version on several keys at once."""
PROTOCOL_SINCE: Final = 5
"""SyncGroup: from this version on a member must say which protocol it believes in."""
GROUPS_SINCE: Final = 8
TOP_LEVEL_ERROR_SINCE: Final = 2
"""OffsetFetch: several groups; a code beside the partitions' own."""


# -- commits -------------------------------------------------------------------------------------


def _not_committed(code: ErrorCode, topic: offset_commit.Topic) -> offset_commit.TopicResult:
    return offset_commit.TopicResult(
        name=topic.name,
        partitions=[
            offset_commit.PartitionResult(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


_commit_topics: Final = EntriesGuard(
    READ_TOPIC,
    entries="topics",
    results="topics",
    name="name",
    denied=partial(_not_committed, TOPIC_CODE),
    response=offset_commit.OffsetCommitResponse,
    size_of=lambda topic: len(topic.partitions),
)


def offset_commit_guard(serve: Handler, context: GuardContext) -> Handler:
    """Read on the group, and on each topic."""
    guarded, allows = _commit_topics(serve, context), context.may

    def handle(call: Call) -> Answer:
        request: offset_commit.OffsetCommitRequest = call.request
        if allows(call, READ_GROUP, request.group_id):
            return guarded(call)
        return served(_all_refused(request))

    return handle


def _all_refused(request: offset_commit.OffsetCommitRequest) -> Steps:
    results, turn = [], Turn()
    for topic in request.topics:
        results.append(_not_committed(GROUP_CODE, topic))
        if turn.is_over(1 + len(topic.partitions)):
            yield
    return offset_commit.OffsetCommitResponse(topics=results)


# -- fetches of offsets --------------------------------------------------------------------------


def offset_fetch_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each group, and on each topic; of all topics the others are left out."""
    remembers = context.authorizer.remembers

    def handle(call: Call) -> Answer:
        request: offset_fetch.OffsetFetchRequest = call.request
        asked: Sequence[Any] = request.groups if call.version >= GROUPS_SINCE else (request,)
        if len(asked) == 1 and asked[0].topics is not None and not call.is_long:
            # Nearly every request: a consumer asks for what it was assigned, of its own group.
            peer = call.peer
            if remembers(peer, *DESCRIBE_GROUP, asked[0].group_id):
                for topic in asked[0].topics:
                    if not remembers(peer, *DESCRIBE_TOPIC, topic.name):
                        break
                else:
                    return serve(call)
        return served(_offset_fetch(call, serve, context, asked))

    return handle


def _offset_fetch(call: Call, serve: Handler, context: GuardContext, asked: Sequence[Any]) -> Steps:
    found = yield from split(call, context, DESCRIBE_GROUP, asked, lambda one: one.group_id)
    refused = [
        offset_fetch.GroupResult(group_id=one.group_id, topics=[], error_code=GROUP_CODE)
        for one in found.denied
    ]
    if refused and call.version < GROUPS_SINCE:
        return _no_group(call)
    denied_topics: dict[str, list[offset_fetch.TopicResult]] = {}
    filters_all = False
    for one in found.permitted:
        if one.topics is None:
            filters_all = True
            continue
        topics = yield from split(
            *(call, context, DESCRIBE_TOPIC, one.topics, lambda topic: topic.name),
            size_of=lambda topic: len(topic.partition_indexes),
        )
        one.topics = topics.permitted
        denied_topics.setdefault(one.group_id, []).extend(map(_not_told, topics.denied))
    if call.version >= GROUPS_SINCE:
        call.request.groups = found.permitted
    if refused and not found.permitted:
        return offset_fetch.OffsetFetchResponse(groups=refused)
    if not refused and not filters_all and not any(denied_topics.values()):
        return serve(call)

    def finish(answer: offset_fetch.OffsetFetchResponse) -> Steps:
        if call.version < GROUPS_SINCE:
            denied = denied_topics.get(call.request.group_id)
            return (yield from _complete(call, context, answer, denied))
        groups = list(refused)
        for result in answer.groups:
            denied = denied_topics.get(result.group_id)
            groups.append((yield from _complete(call, context, result, denied)))
        return changed(answer, groups=groups)

    return afterwards(serve(call), finish)


def _complete(
    call: Call,
    context: GuardContext,
    result: Any,
    denied: list[offset_fetch.TopicResult] | None,
) -> Steps:
    """Put the denied topics in; of those that nobody named, leave the hidden ones out."""
    topics = yield from visible(
        call, context, DESCRIBE_TOPIC, result.topics, lambda topic: topic.name
    )
    # A group that could not be asked says so for all of it.
    if denied and not result.error_code:
        topics = [*denied, *topics]
    return changed(result, topics=topics)


def _not_told(topic: offset_fetch.Topic) -> offset_fetch.TopicResult:
    return offset_fetch.TopicResult(
        name=topic.name,
        partitions=[
            offset_fetch.PartitionResult(
                partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_CODE
            )
            for index in topic.partition_indexes
        ],
    )


def _no_group(call: Call) -> offset_fetch.OffsetFetchResponse:
    if call.version >= TOP_LEVEL_ERROR_SINCE:
        return offset_fetch.OffsetFetchResponse(topics=[], error_code=GROUP_CODE)
    topics = [_not_told(topic) for topic in call.request.topics or ()]
    for topic in topics:
        for one in topic.partitions:
            one.error_code = GROUP_CODE
    return offset_fetch.OffsetFetchResponse(topics=topics)


# -- members -------------------------------------------------------------------------------------


def _group_id(request: Any) -> str:
    name: str = request.group_id
    return name


def _not_joined(call: Call) -> Answer:
    return rebalance_responses.join_refused(GROUP_CODE, call.version, call.request.member_id)


def _not_synced(call: Call) -> Answer:
    request = call.request
    is_incomplete = call.version >= PROTOCOL_SINCE and None in (
        request.protocol_type,
        request.protocol_name,
    )
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_incomplete else GROUP_CODE
    return rebalance_responses.sync_refused(code)


def _parked(guard: Any, refused: Any) -> Any:
    """A request that waits for others: whoever lost the right meanwhile is not answered by it."""

    def guarded(serve: Handler, context: GuardContext) -> Handler:
        checked: Handler = guard(serve, context)

        def handle(call: Call) -> Answer:
            snapshot = context.authorizer.snapshot

            def judge_again(answer: Any) -> Any:
                if context.authorizer.snapshot is snapshot or answer.error_code:
                    return answer
                return (
                    answer
                    if context.may(call, READ_GROUP, call.request.group_id)
                    else refused(call)
                )

            return merged(checked(call), judge_again)

        return handle

    return guarded


join_guard: Final = _parked(whole(READ_GROUP, _not_joined, _group_id), _not_joined)
sync_guard: Final = _parked(whole(READ_GROUP, _not_synced, _group_id), _not_synced)
heartbeat_guard: Final = whole(
    READ_GROUP, lambda _: heartbeat.HeartbeatResponse(error_code=GROUP_CODE), _group_id
)
leave_guard: Final = whole(
    READ_GROUP, lambda _: leave_group.LeaveGroupResponse(error_code=GROUP_CODE), _group_id
)


def _no_heartbeat(code: ErrorCode) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
    return consumer_heartbeats.refused(code, DENIED)


def consumer_group_heartbeat_guard(serve: Handler, context: GuardContext) -> Handler:
    """Read on the group, and Describe on each topic that is named: all of it or nothing."""

    def handle(call: Call) -> Answer:
        request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest = call.request
        if not context.may(call, READ_GROUP, request.group_id):
            return _no_heartbeat(GROUP_CODE)
        if not request.subscribed_topic_names:
            return serve(call)
        return served(_named_topics(call, serve, context))

    return handle


def _named_topics(call: Call, serve: Handler, context: GuardContext) -> Steps:
    names = call.request.subscribed_topic_names
    found = yield from split(call, context, DESCRIBE_TOPIC, names, lambda name: name)
    return _no_heartbeat(TOPIC_CODE) if found.denied else serve(call)


# -- administration ------------------------------------------------------------------------------


def _not_described(name: str) -> describe_groups.Group:
    return describe_groups.Group(
        error_code=GROUP_CODE,
        group_id=name,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


_describe_groups: Final = EntriesGuard(
    DESCRIBE_GROUP,
    entries="groups",
    results="groups",
    name=lambda name: name,
    denied=_not_described,
    response=describe_groups.DescribeGroupsResponse,
)


def describe_groups_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each group; tells what else the peer may do with it, where that is asked."""
    guarded = _describe_groups(serve, context)

    def handle(call: Call) -> Answer:
        answer = guarded(call)
        if not call.request.include_authorized_operations:
            return answer
        return afterwards(answer, lambda response: _with_operations(call, context, response))

    return handle


def _with_operations(call: Call, context: GuardContext, answer: Any) -> Steps:
    groups, turn = [], Turn()
    for group in answer.groups:
        if not group.error_code:
            operations = context.authorizer.operations(
                call.peer, ResourceType.GROUP, group.group_id
            )
            group = changed(group, authorized_operations=operations)
        groups.append(group)
        if turn.is_over(5):
            yield
    return changed(answer, groups=groups)


_consumer_groups: Final = EntriesGuard(
    DESCRIBE_GROUP,
    entries="group_ids",
    results="groups",
    name=lambda name: name,
    denied=lambda name: described_groups.undescribed(name, GROUP_CODE, DENIED),
    response=partial(consumer_group_describe.ConsumerGroupDescribeResponse, throttle_time_ms=0),
)


def consumer_group_describe_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each group, and on every topic that it would tell of."""
    guarded = _consumer_groups(serve, context)

    def shown(call: Call, answer: Any) -> Steps:
        groups = []
        for group in answer.groups:
            told = yield from _with_known_topics(call, context, group)
            groups.append(told)
        answer = changed(answer, groups=groups)
        if not call.request.include_authorized_operations:
            return answer
        return (yield from _with_operations(call, context, answer))

    def handle(call: Call) -> Answer:
        return afterwards(guarded(call), lambda answer: shown(call, answer))

    return handle


def _with_known_topics(
    call: Call, context: GuardContext, group: consumer_group_describe.DescribedGroup
) -> Steps:
    """The group, or only that it has a topic that the peer may not see."""
    names: dict[str, None] = {}
    turn = Turn()
    for member in group.members:
        names.update(dict.fromkeys(member.subscribed_topic_names))
        for assignment in (member.assignment, member.target_assignment):
            names.update(dict.fromkeys(topic.topic_name for topic in assignment.topic_partitions))
        if turn.is_over(3):
            yield
    found = yield from split(call, context, DESCRIBE_TOPIC, names, lambda name: name, is_told=False)
    if found.denied:
        return described_groups.undescribed(group.group_id, TOPIC_CODE, NO_TOPIC)
    return group


def list_groups_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on the cluster shows all; else those that may be described."""

    def shown(call: Call, answer: list_groups.ListGroupsResponse) -> Steps:
        groups = yield from visible(
            call, context, DESCRIBE_GROUP, answer.groups, lambda group: group.group_id
        )
        return changed(answer, groups=groups)

    def handle(call: Call) -> Answer:
        if context.may(call, DESCRIBE_CLUSTER, is_told=False):
            return serve(call)
        return afterwards(serve(call), lambda answer: shown(call, answer))

    return handle


delete_groups_guard: Final = EntriesGuard(
    DELETE_GROUP,
    entries="groups_names",
    results="results",
    name=lambda name: name,
    denied=lambda name: delete_groups.GroupResult(group_id=name, error_code=GROUP_CODE),
    response=delete_groups.DeleteGroupsResponse,
)


def _not_removed(topic: offset_delete.Topic) -> offset_delete.TopicResult:
    return offset_delete.TopicResult(
        name=topic.name,
        partitions=[
            offset_delete.PartitionResult(
                partition_index=one.partition_index, error_code=TOPIC_CODE
            )
            for one in topic.partitions
        ],
    )


_remove_offsets: Final = EntriesGuard(
    READ_TOPIC,
    entries="topics",
    results="topics",
    name="name",
    denied=_not_removed,
    response=offset_delete.OffsetDeleteResponse,
    size_of=lambda topic: len(topic.partitions),
)


def offset_delete_guard(serve: Handler, context: GuardContext) -> Handler:
    """Delete on the group, and Read on each topic."""
    guarded = _remove_offsets(serve, context)
    return whole(
        DELETE_GROUP,
        lambda _: offset_delete.OffsetDeleteResponse(error_code=GROUP_CODE, topics=[]),
        _group_id,
    )(guarded, context)


# -- who coordinates -----------------------------------------------------------------------------


def find_coordinator_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each group or transactional id."""

    def handle(call: Call) -> Answer:
        request: find_coordinator.FindCoordinatorRequest = call.request
        if request.key_type not in (GROUP, TRANSACTION):
            return serve(call)  # refused there
        return served(_find(call, serve, context))

    return handle


def _find(call: Call, serve: Handler, context: GuardContext) -> Steps:
    request: find_coordinator.FindCoordinatorRequest = call.request
    right, code = (
        (DESCRIBE_GROUP, GROUP_CODE) if request.key_type == GROUP else (DESCRIBE_ID, ID_CODE)
    )
    if call.version < KEYS_SINCE:
        if context.may(call, right, request.key):
            return serve(call)
        return find_coordinator.FindCoordinatorResponse(
            error_code=code, error_message=DENIED, node_id=-1, host="", port=-1
        )
    found = yield from split(call, context, right, request.coordinator_keys, lambda key: key)
    if not found.denied:
        return serve(call)
    refused = [
        find_coordinator.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=DENIED
        )
        for key in found.denied
    ]
    if not found.permitted:
        return find_coordinator.FindCoordinatorResponse(coordinators=refused)
    request.coordinator_keys = found.permitted

    def merge(answer: find_coordinator.FindCoordinatorResponse) -> Any:
        return changed(answer, coordinators=[*refused, *answer.coordinators])

    return merged(serve(call), merge)
