"""The requests of a transaction: what is asked of which coordinator, and how answers are read.

Source: docs/spec/transactions.md §2.4 to §2.6, §4.1 and §7; KIP-98, KIP-360, KIP-447.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import GROUP, TRANSACTION
from barnabas.client.errors import known_code
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn, txn_offset_commit
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

from .accumulator import NO_PRODUCER_ID, ProducerIdAndEpoch
from .transaction_errors import Request, decisive

BUMP_SINCE: Final = 3
"""The first version of InitProducerId that takes the producer's own id and epoch (KIP-360)."""
MEMBER_SINCE: Final = 3
"""The first version of TxnOffsetCommit that says which member commits (KIP-447)."""


class Identity(NamedTuple):
    """Whom coordinators know a transactional producer as."""

    transactional_id: str
    producer: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request with all its attempts: to whom it goes, and how its answer is read."""

    request: Request
    message: Callable[[], Any]
    """Made anew for each attempt: a retry asks only for what is missing."""
    code: Callable[[Any], ErrorCode]
    """The code that decides about an answer; takes note of what succeeded."""
    key: str
    """A transactional id, or a group."""
    key_type: int = TRANSACTION
    version_least: int = 0
    """Refused below: a broker that is not told our epoch or generation cannot fence us."""


def init_producer_id(
    identity: Identity, timeout_ms: int, given: Callable[[ProducerIdAndEpoch], None]
) -> Exchange:
    """A producer id, or another epoch of the one there is; ``given`` is told which."""
    transactional_id, (producer_id, epoch) = identity
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )

    def code_of(answer: Any) -> ErrorCode:
        code = known_code(answer.error_code)
        if not code:
            given(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        return code

    return Exchange(
        request=Request.INIT_PRODUCER_ID,
        message=lambda: message,
        code=code_of,
        key=transactional_id,
        version_least=0 if identity.producer == NO_PRODUCER_ID else BUMP_SINCE,
    )


def add_partitions(identity: Identity, asked: Collection[TopicPartition]) -> Exchange:
    """Make partitions part of the transaction: all of them, or none."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(asked):
        topics[topic].append(partition)
    transactional_id, (producer_id, epoch) = identity
    message = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )

    def code_of(answer: Any) -> ErrorCode:
        codes = {
            (topic.name, partition.partition_index): known_code(partition.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        if not codes.keys() >= set(asked):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return decisive(Request.ADD_PARTITIONS, codes.values())

    return Exchange(
        request=Request.ADD_PARTITIONS,
        message=lambda: message,
        code=code_of,
        key=transactional_id,
    )


def add_offsets(identity: Identity, group: str) -> Exchange:
    """Make the offsets of a group part of the transaction."""
    transactional_id, (producer_id, epoch) = identity
    message = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=group,
    )
    return Exchange(
        request=Request.ADD_OFFSETS,
        message=lambda: message,
        code=lambda answer: known_code(answer.error_code),
        key=transactional_id,
    )


def store_offsets(
    identity: Identity, missing: dict[TopicPartition, CommittedOffset], member: GroupMetadata
) -> Exchange:
    """Store the offsets in ``missing``; those that are stored are taken out of it."""

    def code_of(answer: Any) -> ErrorCode:
        codes = set()
        for topic in answer.topics:
            for partition in topic.partitions:
                codes.add(known_code(partition.error_code))
                if not partition.error_code:
                    missing.pop(TopicPartition(topic.name, partition.partition_index), None)
        code = decisive(Request.TXN_OFFSET_COMMIT, codes)
        return ErrorCode.UNKNOWN_SERVER_ERROR if missing and not code else code

    is_member = bool(member.member_id or member.instance_id) or member.generation >= 0
    return Exchange(
        request=Request.TXN_OFFSET_COMMIT,
        message=lambda: _offsets_message(identity, missing, member),
        code=code_of,
        key=member.group,
        key_type=GROUP,
        version_least=MEMBER_SINCE if is_member else 0,
    )


def _offsets_message(
    identity: Identity, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMetadata
) -> txn_offset_commit.TxnOffsetCommitRequest:
    topics: dict[str, list[txn_offset_commit.Partition]] = defaultdict(list)
    for (topic, partition), committed in offsets.items():
        topics[topic].append(
            txn_offset_commit.Partition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    transactional_id, (producer_id, epoch) = identity
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=member.group,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            txn_offset_commit.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def end_transaction(identity: Identity, *, is_commit: bool, may_be_closed: bool) -> Exchange:
    """Commit or abort; ``may_be_closed``: the coordinator may know of no transaction."""
    transactional_id, (producer_id, epoch) = identity
    message = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=is_commit,
    )

    def code_of(answer: Any) -> ErrorCode:
        code = known_code(answer.error_code)
        is_closed = may_be_closed and code is ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE if is_closed else code

    return Exchange(
        request=Request.END_TXN,
        message=lambda: message,
        code=code_of,
        key=transactional_id,
    )
