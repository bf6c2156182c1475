"""What stands before the APIs of transactions.

Source: docs/spec/security.md §3 (the matrix); docs/spec/transactions.md §2.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from barnabas.coordinator.ports import STATE_TOPICS
from barnabas.protocol.acl import Operation, ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)

from .call import Answer, Call, Handler
from .cooperative import Turn
from .guards import (
    ALTER_CLUSTER,
    API_NAMES,
    CLUSTER_ACTION,
    DESCRIBE_ID,
    DESCRIBE_TOPIC,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    WRITE_ID,
    WRITE_TOPIC,
    EntriesGuard,
    GuardContext,
    Steps,
    afterwards,
    changed,
    served,
    split,
    visible,
    whole,
)

ID_CODE: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
GROUP_CODE: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_CODE: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_CODE: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
BATCHES_SINCE: Final = 4
"""AddPartitionsToTxn: from this version on only nodes ask."""


def _transactional_id(request: Any) -> str:
    name: str = request.transactional_id
    return name


def init_producer_id_guard(serve: Handler, context: GuardContext) -> Handler:
    """Write on the id; without one, IdempotentWrite on the cluster or Write on any topic."""
    authorizer = context.authorizer

    def handle(call: Call) -> Answer:
        name = call.request.transactional_id
        if name is not None:
            is_allowed, code = context.may(call, WRITE_ID, name), ID_CODE
        else:
            code = CLUSTER_CODE
            is_allowed = context.may(call, IDEMPOTENT_WRITE, is_told=False) or (
                authorizer.allows_any(
                    *(call.peer, Operation.WRITE, ResourceType.TOPIC),
                    request=API_NAMES[call.key],
                )
            )
        if is_allowed:
            return serve(call)
        return init_producer_id.InitProducerIdResponse(error_code=code, producer_epoch=-1)

    return handle


def add_partitions_guard(serve: Handler, context: GuardContext) -> Handler:
    """Write on the id and on each topic; of a batch, as nodes send it, ClusterAction."""

    def handle(call: Call) -> Answer:
        if call.version >= BATCHES_SINCE:
            if context.may(call, CLUSTER_ACTION):
                return serve(call)
            return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=CLUSTER_CODE)
        return served(_add_partitions(call, serve, context))

    return handle


def _add_partitions(call: Call, serve: Handler, context: GuardContext) -> Steps:
    request: add_partitions_to_txn.AddPartitionsToTxnRequest = call.request
    topics = request.v3_and_below_topics
    if not context.may(call, WRITE_ID, request.v3_and_below_transactional_id):
        return (yield from _added(topics, lambda name, index: ID_CODE))
    found = yield from split(
        *(call, context, WRITE_TOPIC, topics, lambda topic: topic.name),
        size_of=lambda topic: len(topic.partitions),
    )
    if not found.denied:
        return serve(call)
    # One that is refused, and the others are not tried (KAFKA-5322); as the coordinator does it.
    denied = {topic.name for topic in found.denied} | STATE_TOPICS
    snapshot = context.metadata.snapshot

    def code(name: str, index: int) -> ErrorCode:
        if name in denied:
            return TOPIC_CODE
        if snapshot.partition(name, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return (yield from _added(topics, code))


def _added(topics: Any, code: Any) -> Steps:
    results, turn = [], Turn()
    for topic in topics:
        results.append(
            add_partitions_to_txn.TopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.PartitionResult(
                        partition_index=index, partition_error_code=code(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
        )
        if turn.is_over(1 + len(topic.partitions)):
            yield
    return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def add_offsets_guard(serve: Handler, context: GuardContext) -> Handler:
    """Write on the id, and Read on the group."""

    def handle(call: Call) -> Answer:
        request: add_offsets_to_txn.AddOffsetsToTxnRequest = call.request
        if not context.may(call, WRITE_ID, request.transactional_id):
            code = ID_CODE
        elif not context.may(call, READ_GROUP, request.group_id):
            code = GROUP_CODE
        else:
            return serve(call)
        return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=code)

    return handle


end_txn_guard: Final = whole(
    WRITE_ID, lambda _: end_txn.EndTxnResponse(error_code=ID_CODE), _transactional_id
)


def _not_committed(code: ErrorCode, topic: txn_offset_commit.Topic) -> Any:
    return txn_offset_commit.TopicResult(
        name=topic.name,
        partitions=[
            txn_offset_commit.PartitionResult(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ],
    )


_commit_topics: Final = EntriesGuard(
    READ_TOPIC,
    entries="topics",
    results="topics",
    name="name",
    denied=partial(_not_committed, TOPIC_CODE),
    response=txn_offset_commit.TxnOffsetCommitResponse,
    size_of=lambda topic: len(topic.partitions),
)


def txn_offset_commit_guard(serve: Handler, context: GuardContext) -> Handler:
    """Write on the id, Read on the group, and Read on each topic."""
    guarded = _commit_topics(serve, context)

    def handle(call: Call) -> Answer:
        request: txn_offset_commit.TxnOffsetCommitRequest = call.request
        if not context.may(call, WRITE_ID, request.transactional_id):
            return served(_none_committed(request, ID_CODE))
        if not context.may(call, READ_GROUP, request.group_id):
            return served(_none_committed(request, GROUP_CODE))
        return guarded(call)

    return handle


def _none_committed(request: txn_offset_commit.TxnOffsetCommitRequest, code: ErrorCode) -> Steps:
    results, turn = [], Turn()
    for topic in request.topics:
        results.append(_not_committed(code, topic))
        if turn.is_over(1 + len(topic.partitions)):
            yield
    return txn_offset_commit.TxnOffsetCommitResponse(topics=results)


def write_markers_guard(serve: Handler, context: GuardContext) -> Handler:
    """Alter or ClusterAction on the cluster; else a forged marker could end any transaction."""

    def handle(call: Call) -> Answer:
        if context.may(call, ALTER_CLUSTER, is_told=False) or context.may(call, CLUSTER_ACTION):
            return serve(call)
        return served(_unwritten(call.request))

    return handle


def _unwritten(request: write_txn_markers.WriteTxnMarkersRequest) -> Steps:
    markers, turn = [], Turn()
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            topics.append(
                write_txn_markers.TopicResult(
                    name=topic.name,
                    partitions=[
                        write_txn_markers.PartitionResult(
                            partition_index=index, error_code=CLUSTER_CODE
                        )
                        for index in topic.partition_indexes
                    ],
                )
            )
            if turn.is_over(1 + len(topic.partition_indexes)):
                yield
        markers.append(
            write_txn_markers.MarkerResult(producer_id=marker.producer_id, topics=topics)
        )
    return write_txn_markers.WriteTxnMarkersResponse(markers=markers)


_describe: Final = EntriesGuard(
    DESCRIBE_ID,
    entries="transactional_ids",
    results="transaction_states",
    name=lambda name: name,
    denied=lambda name: describe_transactions.Transaction(
        error_code=ID_CODE,
        transactional_id=name,
        transaction_state="",
        topics=[],
    ),
    response=describe_transactions.DescribeTransactionsResponse,
)


def describe_transactions_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each id; topics that may not be described are left out."""
    guarded = _describe(serve, context)

    def shown(call: Call, answer: describe_transactions.DescribeTransactionsResponse) -> Steps:
        states = []
        for state in answer.transaction_states:
            topics = yield from visible(
                call, context, DESCRIBE_TOPIC, state.topics, lambda one: one.topic
            )
            states.append(changed(state, topics=topics))
        return changed(answer, transaction_states=states)

    def handle(call: Call) -> Answer:
        return afterwards(guarded(call), lambda answer: shown(call, answer))

    return handle


def list_transactions_guard(serve: Handler, context: GuardContext) -> Handler:
    """Ids that may not be described are left out."""

    def shown(call: Call, answer: list_transactions.ListTransactionsResponse) -> Steps:
        states = yield from visible(
            *(call, context, DESCRIBE_ID, answer.transaction_states),
            lambda one: one.transactional_id,
        )
        return changed(answer, transaction_states=states)

    def handle(call: Call) -> Answer:
        return afterwards(serve(call), lambda answer: shown(call, answer))

    return handle
