"""What stands before Produce, ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

Fetch is not among them: what a session reads is known to its handler alone (fetch.py).
Source: docs/spec/security.md §3 (the matrix; S56, S81).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.events_topic import EVENTS_TOPIC
from barnabas.protocol.messages import (
    delete_records,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from barnabas.protocol.names import is_internal, topic_problem
from barnabas.protocol.records import batch

from .call import Answer, Call, Handler
from .guards import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    DELETE_TOPIC,
    DENIED,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_ID,
    WRITE_TOPIC,
    EntriesGuard,
    GuardContext,
    Split,
    changed,
    merged,
)
from .produce import ADMIN_CLIENT

FLAGS_END: Final = 23
"""So many bytes a batch has up to the flags that tell of a transaction (docs/spec/log.md §1.7)."""
CODE: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def has_transactional_records(request: produce.ProduceRequest) -> bool:
    """Whether a batch says that it belongs to a transaction, whatever the request says.

    The batches are looked at, since they are what is appended: one of a transaction that came
    without a transactional id would never be ended by anybody (CVE-2018-17196).
    """
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None or len(records) < FLAGS_END:
                continue
            if batch.is_transactional(records):
                return True
    return False


def produce_guard(serve: Handler, context: GuardContext) -> Handler:
    """Write on each topic; for batches of a transaction also on its id, or nothing is appended.

    All in this turn: the records are in memory that the connection's next request comes into.
    """
    remembers = context.authorizer.remembers

    def handle(call: Call) -> Answer:
        request: produce.ProduceRequest = call.request
        if has_transactional_records(request):
            name = request.transactional_id
            if name is None or not context.may(call, WRITE_ID, name):
                return _refused_produce(call, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        for topic in request.topic_data:
            if not remembers(call.peer, *WRITE_TOPIC, topic.name) or is_internal(topic.name):
                break
        else:
            return serve(call)
        found = _split_produce(call, context)
        if not found.denied:
            return serve(call)
        return _produce_rest(call, serve, found)

    return handle


def _split_produce(call: Call, context: GuardContext) -> Split:
    counts: dict[str, int] = {}
    for topic in call.request.topic_data:
        counts[topic.name] = counts.get(topic.name, 0) + len(topic.partition_data)
    verdicts = {name: _may_write(call, context, name, count) for name, count in counts.items()}
    found = Split([], [])
    for topic in call.request.topic_data:
        found[not verdicts[topic.name]].append(topic)
    return found


def _may_write(call: Call, context: GuardContext, name: str, count: int) -> bool:
    # Nodes note there what was changed by hand; clients may not write to it in any case.
    if name in (AUDIT_TOPIC, EVENTS_TOPIC) and call.peer.is_node:
        return True
    if not context.may(call, WRITE_TOPIC, name, count):
        return False
    # Anybody can choose a client id: by itself it must not open internal topics (KIP-1246).
    opens_internal = is_internal(name) and call.client_id == ADMIN_CLIENT
    return not opens_internal or context.may(call, ALTER_CLUSTER)


def _produce_rest(call: Call, serve: Handler, found: Split) -> Answer:
    refused = [_refused_topic(topic, CODE) for topic in found.denied]
    acks = call.request.acks
    if not found.permitted:
        return _refused_produce(call, CODE)

    def merge(answer: Any) -> Any:
        # Without acks a closed connection is the only way to tell.
        if acks == 0:
            raise CorruptRequest(f"without acks: {CODE.name}")
        return changed(answer, responses=[*refused, *answer.responses])

    call.request.topic_data = found.permitted
    return merged(serve(call), merge)


def _refused_produce(call: Call, code: ErrorCode) -> produce.ProduceResponse:
    if call.request.acks == 0:
        raise CorruptRequest(f"without acks: {code.name}")
    return produce.ProduceResponse(
        responses=[_refused_topic(topic, code) for topic in call.request.topic_data]
    )


def _refused_topic(topic: produce.Topic, code: ErrorCode) -> produce.TopicResult:
    return produce.TopicResult(
        name=topic.name,
        partition_responses=[
            produce.PartitionResult(index=wanted.index, error_code=code, base_offset=-1)
            for wanted in topic.partition_data
        ],
    )


def _partitions_of(topic: Any) -> int:
    partitions: Sequence[Any] = topic.partitions
    return len(partitions)


def _no_offsets(topic: list_offsets.Topic) -> list_offsets.TopicResult:
    return list_offsets.TopicResult(
        name=topic.name,
        partitions=[
            list_offsets.PartitionResult(partition_index=one.partition_index, error_code=CODE)
            for one in topic.partitions
        ],
    )


_list_offsets: Final = EntriesGuard(
    DESCRIBE_TOPIC,
    entries="topics",
    results="topics",
    name="name",
    denied=_no_offsets,
    response=list_offsets.ListOffsetsResponse,
    size_of=_partitions_of,
)


def list_offsets_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each topic; a node that asks as a follower needs ClusterAction alone."""
    guarded = _list_offsets(serve, context)

    def handle(call: Call) -> Answer:
        is_follower = call.peer.is_internal and call.request.replica_id >= 0
        if is_follower and context.may(call, CLUSTER_ACTION, is_told=False):
            return serve(call)
        return guarded(call)

    return handle


def _no_epoch(topic: offset_for_leader_epoch.Topic) -> offset_for_leader_epoch.TopicResult:
    return offset_for_leader_epoch.TopicResult(
        topic=topic.topic,
        partitions=[
            offset_for_leader_epoch.PartitionResult(partition=one.partition, error_code=CODE)
            for one in topic.partitions
        ],
    )


_leader_epochs: Final = EntriesGuard(
    DESCRIBE_TOPIC,
    entries="topics",
    results="topics",
    name="topic",
    denied=_no_epoch,
    response=offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    size_of=_partitions_of,
)


def leader_epochs_guard(serve: Handler, context: GuardContext) -> Handler:
    """Describe on each topic, or ClusterAction, which followers have."""
    guarded = _leader_epochs(serve, context)

    def handle(call: Call) -> Answer:
        if context.may(call, CLUSTER_ACTION, is_told=False):
            return serve(call)
        return guarded(call)

    return handle


def _not_deleted(topic: delete_records.Topic) -> delete_records.TopicResult:
    return delete_records.TopicResult(
        name=topic.name,
        partitions=[
            delete_records.PartitionResult(
                partition_index=one.partition_index, low_watermark=-1, error_code=CODE
            )
            for one in topic.partitions
        ],
    )


delete_records_guard: Final = EntriesGuard(
    DELETE_TOPIC,
    entries="topics",
    results="topics",
    name="name",
    denied=_not_deleted,
    response=delete_records.DeleteRecordsResponse,
    size_of=_partitions_of,
)


def _no_producers(topic: describe_producers.Topic) -> describe_producers.TopicResult:
    code = CODE if topic_problem(topic.name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return describe_producers.TopicResult(
        name=topic.name,
        partitions=[
            describe_producers.PartitionResult(
                partition_index=index, error_code=code, error_message=DENIED
            )
            for index in topic.partition_indexes
        ],
    )


describe_producers_guard: Final = EntriesGuard(
    READ_TOPIC,
    entries="topics",
    results="topics",
    name="name",
    denied=_no_producers,
    response=describe_producers.DescribeProducersResponse,
    size_of=lambda topic: len(topic.partition_indexes),
)
