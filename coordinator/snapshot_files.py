"""Which snapshot may be believed, how it is read and when it is out of date.

Source: coordinator.md section 3.4.1. A snapshot is only ever a shorter way to what the log says:
whenever there is doubt it is deleted, and the log is read.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from barnabas.protocol.errors import Refused
from barnabas.protocol.records.failures import CorruptRecords

from .ports import Replica, SnapshotFile
from .snapshot import HEADER_BYTES, Restoring, SnapshotHeader, frames_of, sealed

if TYPE_CHECKING:
    from .replay import Replay
    from .shadow import Shadow

log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 16
_FRAMES_A_STEP: Final = 16


def doubt(replica: Replica, header: SnapshotHeader) -> str | None:
    """Why a snapshot is not to be used with the log as it is now; None when it may be."""
    start, _, end = replica.bounds()
    offset = header.offset
    if header.log_start != start:
        return f"the log starts at {start}, not at {header.log_start}"
    if not start < offset <= end:
        return f"the log ends at {end}, below {offset}"
    if header.leader_epoch < 0 or replica.epoch_at(offset - 1) != header.leader_epoch:
        return f"epoch {header.leader_epoch} did not write offset {offset - 1}"
    if replica.cleaned_offset() > offset:
        return "compaction may have dropped what was deleted since"
    return None


def saved_offset(replica: Replica) -> int:
    """Of which offset there is a snapshot; -1 without one. One that is no good is deleted."""
    file = replica.snapshot()
    if file is None:
        return -1
    try:
        return _believed(replica, file).offset
    except (CorruptRecords, Refused) as problem:
        _drop(replica, str(problem))
        return -1
    finally:
        file.close()


def restored(replica: Replica) -> Generator[None, None, tuple[Replay, int] | None]:
    """What the snapshot holds, and its offset; None when the log is to be read from its start.

    Yields often. A snapshot that is no good is deleted.
    """
    file = replica.snapshot()
    if file is None:
        return None
    try:
        header = _believed(replica, file)
        restoring = Restoring()
        position = HEADER_BYTES
        while piece := file.read(position, _READ_BYTES):
            yield from restoring.feed(piece)
            position += len(piece)
        if restoring.crc != header.body_crc or not restoring.is_between_frames:
            raise CorruptRecords("the checksum of its body")
        _judge(replica, header)  # the log may have been cut while the file was read
    except (CorruptRecords, Refused) as problem:
        _drop(replica, str(problem))
        return None
    finally:
        file.close()
    return restoring.replay, header.offset


def capture(shadow: Shadow) -> Generator[None, None, tuple[SnapshotHeader, list[bytes]] | None]:
    """Header and frames of a shadow that does not move meanwhile; None when nothing is to be kept.

    Yields often.
    """
    offset = shadow.position
    epoch = shadow.replica.epoch_at(offset - 1) if offset > shadow.log_start else -1
    if epoch < 0:
        return None
    header = SnapshotHeader(epoch, shadow.log_start, offset)
    frames = []
    for frame in frames_of(shadow.replay):
        frames.append(frame)
        if not len(frames) % _FRAMES_A_STEP:
            yield
    return header, frames


async def write(replica: Replica, header: SnapshotHeader, frames: list[bytes]) -> None:
    """Put it beside the log, unless that was changed meanwhile."""
    if doubt(replica, header) is not None:
        return
    await replica.write_snapshot(lambda: sealed(header, frames))
    saved_offset(replica)  # deletes it when the log was cut while it was written


def drop_above(replica: Replica, offset: int) -> None:
    """The log is about to be cut at ``offset``."""
    if saved_offset(replica) > offset:
        _drop(replica, f"the log is cut at {offset}")


def _believed(replica: Replica, file: SnapshotFile) -> SnapshotHeader:
    header = SnapshotHeader.parse(file.read(0, HEADER_BYTES))
    if file.size != HEADER_BYTES + header.body_bytes:
        raise CorruptRecords(f"{file.size} bytes")
    _judge(replica, header)
    return header


def _judge(replica: Replica, header: SnapshotHeader) -> None:
    reason = doubt(replica, header)
    if reason is not None:
        raise CorruptRecords(reason)


def _drop(replica: Replica, reason: str) -> None:
    log.warning("deleted a snapshot of offsets: %s", reason)
    replica.drop_snapshot()
