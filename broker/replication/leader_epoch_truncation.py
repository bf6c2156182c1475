"""Truncation by leader epochs: what a follower cuts off because its leader does not have it.

Never by its own high watermark, which lags by one fetch: cutting there lost records that were
acknowledged, and left logs that differ (KIP-101). A leader that does not know the epoch it is asked
about answers with the newest one before it, and the follower asks again from there (KIP-279), so
after some rounds both stand at the last offset at which their logs agree.

    leader    epochs {0: 0, 1: 5, 4: 8}   end 12
    follower  epochs {0: 0, 2: 6, 3: 9}   end 11     asks (offset 11, epoch 3)
      the leader knows nothing newer than 1 below 3: epoch 1 ends at 8   → cut at 6, ask (6, 0)
      epoch 0 ends at 5 there                                            → cut at 5, ask (5, 0)
      offset 5 in epoch 0 is the leader's, too                           → fetch from 5

Source: docs/spec/cluster.md §3.5; §6 pitfalls 10 to 13.
"""

from __future__ import annotations

import logging

from barnabas.broker.storage.recovery.damage import damaged_offsets, damaged_parts, is_damaged
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.fetch import DivergingEpoch

from .partition import Partition

log = logging.getLogger(__name__)


def prepare_to_follow(partition: Partition) -> bool:
    """Make a log fit to be compared by epochs; False when it is. Raises Refused(56).

    Else it was truncated, or will be when recovery points are written down and this is asked again.
    A log without epochs, written in older formats, can only be trusted as far as it is committed:
    the one case in which the high watermark decides.
    """
    log = partition.log
    if is_damaged(log):
        _drop_damage(partition)
        return True
    if log.epochs.latest >= 0 or log.end_offset <= partition.high_watermark:
        partition.is_outside_isr = False  # it may join the in-sync set from here on
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
    if not partition.is_outside_isr:
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
    """Cut, unless recovery points must be written down before: then the leader is asked again.

    A recovery point above the log's end would have recovery after a crash trust what it never read.
    """
    if partition.log.may_truncate_to(offset):
        partition.truncate_to(offset)


def truncate_to_divergence(partition: Partition, leaders: DivergingEpoch) -> None:
    """Cut where this log left the leader's, or one epoch on the way there.

    Also where nothing is cut: the epochs that begin at the end must go, or the leader is asked
    about them for ever (KAFKA-7415).
    """
    assert leaders.end_offset >= 0, "the leader named no offset"
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


def truncate_to_bounds(partition: Partition, leaders_start: int, leaders_end: int) -> bool:
    """The leader's log does not reach this one's end: True when this one was changed for that.

    Raises Refused(56).
    """
    own = partition.log
    if leaders_end < own.end_offset:
        # Only after an unclean election, or where the leader lost its disk: nobody else has it.
        _truncate_to(partition, leaders_end)
        return True
    if leaders_start > own.end_offset:
        log.warning("began anew %s at=%d from=%d", partition, leaders_start, own.end_offset)
        partition.restart_at(leaders_start)
        return True
    return False
