"""What a follower does with one partition's part of a fetch answer: truncate, append, follow.

Source: docs/spec/cluster.md §3.4; §6 pitfalls 10 to 13. What is cut, and where, is
leader_epoch_truncation.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Final

from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages.fetch import PartitionResult

from .leader_epoch_truncation import truncate_to_divergence
from .partition import Partition

log = logging.getLogger(__name__)


class NextStep(Enum):
    """What is to be done with a partition after an answer."""

    FETCH = "fetch"
    FETCH_AFTER_TRUNCATION = "fetch after truncation"
    """The recovery point was lowered: it is written down before anything is cut or appended."""
    WAIT = "wait"
    STOP = "stop"
    """Until the controller's next LeaderAndIsr."""
    ASK_BOUNDS = "ask bounds"
    """The leader's log begins after, or ends before, where this one ends."""


NEXT_STEP_BY_ERROR: Final[Mapping[int, NextStep]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: NextStep.ASK_BOUNDS,
    ErrorCode.FENCED_LEADER_EPOCH: NextStep.STOP,
}
"""Every other error of the leader passes: a control request is on its way, here or there."""


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
        # The high watermark of this answer is ignored: it may be above what is about to be cut, and
        # records that the leader does not have would be shown as committed (KAFKA-14704).
        truncate_to_divergence(partition, result.diverging_epoch)
        return NextStep.FETCH_AFTER_TRUNCATION
    before, data = partition.log.end_offset, bytes(result.records or b"")
    if data:
        # Verbatim: offsets and leader epochs are the leader's, so equal (offset, epoch) means equal
        # bytes on every replica (docs/spec/cluster.md §3.9, 2).
        partition.log.append_as_follower(data)
    assert partition.log.end_offset >= before
    partition.follow_high_watermark(result.high_watermark)
    partition.follow_log_start(result.log_start_offset)
    if partition.watcher is not None:
        partition.watcher.followed(before, data)
    return NextStep.FETCH
