"""What followers may ask, and what reading for one of them means to the leader.

Believed on the inter-broker listener only. Source: cluster.md sections 2.14, 3.5 and 3.6;
reliability.md section 8.2 (fake follower, CVE-2018-1288).
"""

from __future__ import annotations

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import CorruptRequest, ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages

from .call import Call

UNKNOWN_REPLICA = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH)
"""What a node is told that asks as a follower of a partition it has no replica of."""
NO_EPOCH = -1


def refuse_strangers(call: Call) -> None:
    """Raises CorruptRequest, which closes the connection, for a replica id on a client listener."""
    if call.request.replica_id >= 0 and not call.peer.is_internal:
        raise CorruptRequest("a replica id on a client listener")


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
