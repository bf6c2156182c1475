"""What followers may ask, and what reading for one of them means to the leader.

Believed on the inter-broker listener only. Source: docs/spec/cluster.md §2.14, §3.5 and §3.6;
docs/spec/reliability.md §8.2 (fake follower, CVE-2018-1288).
"""

from __future__ import annotations

import logging

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.recovery.damage import suspect
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages

from .call import Call
from .fetch_sessions import PartitionRead
from .guards import CLUSTER_ACTION, GuardContext

log = logging.getLogger(__name__)

UNKNOWN_REPLICA = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH)
"""What a node is told that asks as a follower of a partition it has no replica of."""
NO_EPOCH = -1
CONSUMER = -1
"""The replica id of those who are no replica."""


def poses_as_follower(call: Call) -> bool:
    """Whether a replica id was given on a listener of clients, who have none."""
    return call.request.replica_id >= 0 and not call.peer.is_internal


def may_not_follow(rights: GuardContext | None, call: Call) -> bool:
    """Whether a replica id was given by somebody who has no right to act as a node."""
    return (
        rights is not None and call.request.replica_id >= 0 and not rights.may(call, CLUSTER_ACTION)
    )


def take_for_consumer(call: Call) -> None:
    """Forget a replica id that a client gave: it asks as a consumer, whatever it says.

    kafka-python 3.0.0 to 3.0.11 put 0 into ListOffsets, which Kafka answers as well.
    """
    if poses_as_follower(call):
        call.request.replica_id = CONSUMER


def refuse_follower(replicas: ReplicaManager, read: PartitionRead) -> None:
    """Raises Refused with what Kafka tells a node without a replica, or of no such partition.

    A fetch says how far a follower has come, which would commit what only we have: so nobody is
    believed to be one, not even where the id is that of a follower.
    """
    asked = read.partition
    replicas.led(read.topic, asked.partition)
    raise Refused(UNKNOWN_REPLICA[asked.current_leader_epoch != NO_EPOCH])


def check_replica(partition: Partition, node: int, asked: messages.Partition) -> None:
    """Raises Refused unless ``node`` has a replica of this partition, and is not the leader."""
    if node == partition.leader_id or node not in partition.replicas:
        raise Refused(UNKNOWN_REPLICA[asked.current_leader_epoch != NO_EPOCH])


def divergence(partition: Partition, asked: messages.Partition) -> messages.DivergingEpoch | None:
    """Where a reader's log left this one, from the last epoch it has; None when it did not.

    Raises Refused(OFFSET_OUT_OF_RANGE) for an epoch that is not known here, and for an offset
    below the log's start.
    """
    last = asked.last_fetched_epoch
    if last == NO_EPOCH:
        return None
    epoch, end = partition.log.epoch_end_offset(last)
    if epoch == NO_EPOCH or asked.fetch_offset < partition.log.start_offset:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last or end < asked.fetch_offset:
        return messages.DivergingEpoch(epoch=epoch, end_offset=end)
    return None


def is_position(partition: Partition, node: int, asked: messages.Partition) -> bool:
    """Whether the offset asked for says how far a follower's log agrees with this one."""
    log = partition.log
    try:
        partition.check_epoch(asked.current_leader_epoch)
        check_replica(partition, node, asked)
        if log.is_offline or divergence(partition, asked) is not None:
            return False
    except Refused:
        return False
    return log.start_offset <= asked.fetch_offset <= log.end_offset


def is_at_ease(partition: Partition, node: int, asked: messages.Partition) -> bool:
    """Whether all is as it mostly is: so that :func:`is_position` holds, without its detail."""
    log = partition.log
    return (
        partition.is_leader
        and asked.current_leader_epoch == partition.leader_epoch
        and asked.last_fetched_epoch == log.epochs.latest
        and log.start_offset <= asked.fetch_offset <= log.end_offset
        and node != partition.leader_id
        and node in partition.replicas
        and not log.is_offline
    )


def read_tail(replicas: ReplicaManager, node: int, read: PartitionRead, bytes_max: int) -> bool:
    """Answer a follower that is at the log's end, or before its last batch, without a file.

    False, and nothing is answered, when that is not so.
    """
    asked, result = read.partition, read.result
    partition = replicas.get(read.topic, asked.partition)
    if partition is None or not is_at_ease(partition, node, asked):
        return False
    log = partition.log
    if asked.fetch_offset == log.end_offset:
        records = b""
    else:
        tail = partition.fetch_waiters.tail
        if tail is None or tail[0] != asked.fetch_offset or len(tail[1]) > bytes_max:
            return False
        records = tail[1]
    result.error_code = ErrorCode.NONE
    result.diverging_epoch = None
    result.high_watermark = mark = partition.high_watermark
    result.last_stable_offset = log.last_stable_offset(mark)
    result.log_start_offset = log.start_offset
    result.records = records
    return True


def suspect_repeated_read(partition: Partition, node: int, offset: int) -> None:
    """Reads verify no checksums: one who is given the same over and over may have found one wrong.

    Then this copy is verified, and what proves to be damaged is treated as if a reader met it.
    """
    if partition.followers.was_given(node, offset):
        log.warning(
            "verifies its own copy: a follower asks for the same again and again %s node=%d "
            "offset=%d",
            *(partition, node, offset),
        )
        suspect(partition.log, offset)
