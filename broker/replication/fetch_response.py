"""What a follower does with one partition's part of a fetch answer.

Source: docs/spec/cluster.md §3.4 and §3.5; §6 pitfalls 10 to 13.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Final

from barnabas.broker.storage.recovery.damage import damaged_offsets, damaged_parts, is_damaged
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.fetch import DivergingEpoch, PartitionResult

from .partition import Partition

log = logging.getLogger(__name__)


class NextStep(Enum):
    """What is to be done with a partition after an answer."""

    FETCH = "fetch"
    FETCH_AFTER_TRUNCATION = "fetch after truncation"
    """The recovery point was lowered: it is written down before anything is cut or appended."""
    WAIT = "wait"
    STOP = "stop"
    """Until the controller's next order."""
    ASK_BOUNDS = "ask bounds"
    """The leader's log begins after, or ends before, where this one ends."""


NEXT_STEP_BY_ERROR: Final[Mapping[int, NextStep]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: NextStep.ASK_BOUNDS,
    ErrorCode.FENCED_LEADER_EPOCH: NextStep.STOP,
}
"""Every other error of the leader passes: news are on their way, here or there."""


def begin(partition: Partition) -> bool:
    """Make a log fit to be compared by epochs; False when it is. Raises Refused(56).

    Else it was truncated, or will be when recovery points are written down and this is asked again.
    A log without epochs, written in older formats, can only be trusted as far as it is committed.
    """
    log = partition.log
    if is_damaged(log):
        _drop_damage(partition)
        return True
    if log.epochs.latest >= 0 or log.end_offset <= partition.high_watermark:
        partition.is_outside = False  # it may join the in-sync set from here on
        return False
    _truncate_to(partition, partition.high_watermark)
    return True


def _drop_damage(partition: Partition) -> None:
    """Drop what is damaged and what follows it, to be fetched again; perhaps at the next try.

    Of a compacted log all of it: the leader may have dropped tombstones meanwhile, and what they
    deleted must not stay. Raises Refused(56) for a replica that others count on: it leaves the
    in-sync set first (damaged_replicas.py).
    """
    own = partition.log
    if not partition.is_outside:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is damaged and in sync")
    first = next(damaged_parts(own))[1].first_offset
    is_all = own.config.is_compacted or first <= own.start_offset
    offset = own.start_offset if is_all else first
    if own.may_truncate_to(offset):
        log.warning(
            "fetches anew what is damaged, and what follows it %s damaged=%s from=%d to=%d",
            *(partition, damaged_offsets(own), offset, own.end_offset),
        )
        partition.drop_damage(offset, is_all=is_all)


def _truncate_to(partition: Partition, offset: int) -> None:
    """Cut, unless recovery points must be written down before: then the leader is asked again."""
    if partition.log.may_truncate_to(offset):
        partition.truncate_to(offset)


def apply(partition: Partition, result: PartitionResult) -> NextStep:
    """Append or truncate as the leader says; it was asked for what follows this log's end.

    Raises Refused: 2 and 87 for what the leader must not have sent, 56.
    """
    if result.error_code == ErrorCode.CORRUPT_MESSAGE:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "the leader's own copy is damaged there")
    if result.error_code:
        log.debug("could not fetch %s code=%d", partition, result.error_code)
        return NEXT_STEP_BY_ERROR.get(result.error_code, NextStep.WAIT)
    if result.diverging_epoch is not None and result.diverging_epoch.end_offset >= 0:
        truncate(partition, result.diverging_epoch)
        return NextStep.FETCH_AFTER_TRUNCATION
    before, data = partition.log.end_offset, bytes(result.records or b"")
    if data:
        partition.log.append_as_follower(data)
    partition.follow_high_watermark(result.high_watermark)
    partition.follow_log_start(result.log_start_offset)
    if partition.watcher is not None:
        partition.watcher.followed(before, data)
    return NextStep.FETCH


def truncate(partition: Partition, leaders: DivergingEpoch) -> None:
    """Cut where this log left the leader's, or one epoch on the way there.

    Also where nothing is cut: the epochs that begin at the end must go, or the leader is asked
    about them for ever (KAFKA-7415).
    """
    own = partition.log
    epoch, end = own.epoch_end_offset(leaders.epoch)
    if epoch == leaders.epoch:
        target = min(end, leaders.end_offset, own.end_offset)
    elif epoch >= 0:
        target = min(end, own.end_offset)
    else:
        target = min(leaders.end_offset, own.end_offset)
    log.info(
        "truncated %s from=%d to=%d diverging_epoch=%d",
        partition,
        own.end_offset,
        target,
        leaders.epoch,
    )
    _truncate_to(partition, target)


def restart(partition: Partition, leaders_start: int, leaders_end: int) -> bool:
    """The leader's log does not reach this one's end: True when this one was changed for that.

    Raises Refused(56).
    """
    own = partition.log
    if leaders_end < own.end_offset:
        _truncate_to(partition, leaders_end)
        return True
    if leaders_start > own.end_offset:
        log.warning("began anew %s at=%d from=%d", partition, leaders_start, own.end_offset)
        partition.restart_at(leaders_start)
        return True
    return False
